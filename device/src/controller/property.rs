//! Controller properties. Base 2.1, section "Controller Properties".

use super::profile::{ControllerKind, capabilities};
use super::queue_pair::QueuePair;
use super::{Answer, CommandResult, Subsystem, SubsystemOutput};
use ddlp_nvme::Status;
use ddlp_nvme::fabrics::{PropertyGet, PropertySet};
use ddlp_nvme::property::{Configuration, ControllerStatus, VERSION_2_1, is_wide, offset};
use std::collections::BTreeMap;

/// CC and CSTS of one controller.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    is_discovery: bool,
    configuration: Configuration,
    status: ControllerStatus,
    was_enabled: bool,
}

/// Effect of a write to CC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigurationChange {
    /// No effect on queues.
    None,
    /// The controller is shut down: its work ends.
    ShutDown,
    /// The controller is disabled and so reset: its work and its I/O queues end.
    Reset,
}

impl Properties {
    /// Returns the properties of a controller that is not enabled yet.
    pub fn new(kind: ControllerKind) -> Self {
        let (configuration, status) = (Configuration::default(), ControllerStatus::default());
        Self { is_discovery: kind.is_discovery(), configuration, status, was_enabled: false }
    }

    /// Returns whether the controller is enabled and not shut down.
    pub fn is_ready(&self) -> bool {
        self.status.ready() && self.status.shutdown() == ControllerStatus::SHUTDOWN_NONE
    }

    /// Returns whether the controller has been enabled at least once.
    pub fn was_enabled(&self) -> bool {
        self.was_enabled
    }

    fn get(&self, at: u32) -> Option<u64> {
        match at {
            offset::CAP => Some(capabilities(self.is_discovery).0),
            offset::VS => Some(VERSION_2_1.into()),
            // Exactly the value that was written: Linux 6.1 reads it back and modifies it.
            offset::CC => Some(self.configuration.0.into()),
            offset::CSTS => Some(self.status.0.into()),
            _ => None,
        }
    }

    fn set_configuration(&mut self, value: u32) -> Result<ConfigurationChange, Status> {
        let (old, new) = (self.configuration, Configuration(value));
        if new.enabled() && !old.enabled() {
            let most = if self.is_discovery { Configuration::CSS_ADMIN } else { Configuration::CSS_ALL };
            let sets = [Configuration::CSS_NVM, most];
            // Entry sizes may still be 0: only I/O queues use them, and Fabrics fixes them.
            let entries = (new.submission_entry(), new.completion_entry());
            if !sets.contains(&new.command_sets()) || new.page() != 0 || ![(6, 4), (0, 0)].contains(&entries) {
                return Err(Status::INVALID_FIELD.do_not_retry());
            }
        }
        self.configuration = new;
        let mut change = ConfigurationChange::None;
        if old.enabled() && !new.enabled() {
            self.status = ControllerStatus::default();
            change = ConfigurationChange::Reset;
        } else if new.enabled() && !old.enabled() {
            self.status = ControllerStatus::default().with_ready(true);
            self.was_enabled = true;
        }
        if new.shutdown() != 0 && old.shutdown() == 0 {
            self.status = self.status.with_shutdown(ControllerStatus::SHUTDOWN_COMPLETE);
            if change == ConfigurationChange::None {
                change = ConfigurationChange::ShutDown;
            }
        }
        Ok(change)
    }
}

impl Subsystem {
    pub(super) fn property_get(&self, queue: QueuePair, command: &PropertyGet) -> CommandResult {
        let invalid = Status::INVALID_FIELD.do_not_retry();
        let at = command.offset.get();
        let association = self.associations.get(&queue.controller_id).ok_or(Status::COMMAND_SEQUENCE)?;
        let wide = command.bytes().ok_or(invalid)? == 8;
        let value = association.properties.get(at).filter(|_| wide == is_wide(at)).ok_or(invalid)?;
        Answer::result(value)
    }

    pub(super) fn property_set(&mut self, queue: QueuePair, command: &PropertySet) -> CommandResult {
        let id = queue.controller_id;
        let association = self.associations.get_mut(&id).ok_or(Status::COMMAND_SEQUENCE)?;
        if command.offset.get() != offset::CC || command.bytes() != Some(4) {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        let change = association.properties.set_configuration(command.value.get() as u32)?;
        if change != ConfigurationChange::None {
            association.features.reset();
            let conn = association.admin;
            let requests = association.event_requests.drain(..);
            self.outputs.extend(requests.map(|command_id| SubsystemOutput::Forget { conn, command_id }));
            association.event_masked = false;
            let host = association.host.clone();
            // Base 2.1, section "Controller Level Reset": all I/O queues are deleted. The admin queue stays.
            let queues = if change == ConfigurationChange::Reset {
                std::mem::take(&mut association.io_queues)
            } else {
                BTreeMap::new()
            };
            self.abandon(|work| work.controller_id == id);
            self.forget_programs(&host, id);
            for conn in queues.into_values() {
                self.queues.remove(&conn);
                self.outputs.push(SubsystemOutput::Close(conn));
            }
        }
        Answer::DONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_read_back_and_status_follows() {
        let mut properties = Properties::new(ControllerKind::Io);
        // The two writes of Linux at bring-up, then shutdown, then disable.
        for (value, csts, change) in [
            (0x0046_0060, 0b0000, ConfigurationChange::None),
            (0x0046_0061, 0b0001, ConfigurationChange::None),
            (0x0046_4061, 0b1001, ConfigurationChange::ShutDown),
            (0x0046_4060, 0b0000, ConfigurationChange::Reset),
        ] {
            assert_eq!(properties.set_configuration(value), Ok(change), "{value:#x}");
            assert_eq!(properties.get(offset::CC), Some(value.into()));
            assert_eq!(properties.get(offset::CSTS), Some(csts), "{value:#x}");
        }
    }

    #[test]
    fn unsupported_configurations_do_not_enable() {
        let discovery = ControllerKind::Discovery(([127, 0, 0, 1], 4420).into());
        let cases = [
            (ControllerKind::Io, 0x0046_0011),
            (ControllerKind::Io, 0x0046_0071),
            (ControllerKind::Io, 0x0046_00E1),
            (ControllerKind::Io, 0x0055_0061),
        ];
        for (kind, value) in cases.into_iter().chain([(discovery, 0x0046_0061), (discovery, 0x0055_0001)]) {
            let mut properties = Properties::new(kind);
            assert!(properties.set_configuration(value).is_err(), "{value:#x}");
            assert!(!properties.is_ready());
        }
    }

    #[test]
    fn a_discovery_controller_can_be_enabled_with_either_command_set_it_offers() {
        for value in [0x0046_0001, 0x0046_0071] {
            let mut properties = Properties::new(ControllerKind::Discovery(([127, 0, 0, 1], 4420).into()));
            properties.set_configuration(value).unwrap();
            assert!(properties.is_ready(), "{value:#x}");
        }
    }
}
