//! Set Features and Get Features, for the mandatory features and those that Linux uses.

use super::profile::{IO_QUEUES_MAX, KEEP_ALIVE_GRANULARITY_MS, WARNING_TEMPERATURE_K};
use super::queue_pair::QueuePair;
use super::{Answer, CommandResult, Subsystem};
use ddlp_nvme::admin::{FeatureSelect, GetFeatures, NumberOfQueues, SetFeatures};
use ddlp_nvme::event::AsyncEventConfiguration;
use ddlp_nvme::{FeatureId, Status, SubmissionEntry};

/// Bytes of the data structure of Host Behavior Support.
pub const HOST_BEHAVIOR_BYTES: usize = 512;

/// Capabilities that Get Features reports for every feature: changeable, not saved.
const SUPPORTED: u32 = ddlp_nvme::admin::feature_capabilities(false, false, true);

/// Feature values of one controller.
#[derive(Clone, Debug)]
pub struct Features {
    /// Keep alive time-out, 0 for none.
    pub keep_alive_ms: u32,
    /// Asynchronous events that the host wants.
    pub events: AsyncEventConfiguration,
    /// Over-temperature threshold of the composite temperature.
    pub temperature_threshold_k: u16,
    arbitration: u32,
    error_recovery: u32,
    write_atomicity: u32,
    queues: NumberOfQueues,
    host_behavior: Box<[u8; HOST_BEHAVIOR_BYTES]>,
}

impl Features {
    /// Returns the values at the start of an association.
    pub fn new(keep_alive_ms: u32) -> Self {
        let most = IO_QUEUES_MAX - 1;
        Self {
            keep_alive_ms,
            events: AsyncEventConfiguration::default(),
            temperature_threshold_k: WARNING_TEMPERATURE_K,
            arbitration: 0,
            error_recovery: 0,
            write_atomicity: 0,
            queues: NumberOfQueues { submission_z: most, completion_z: most },
            host_behavior: Box::new([0; HOST_BEHAVIOR_BYTES]),
        }
    }

    /// Restores the start values after a controller reset. The keep alive time-out belongs to the association and
    /// stays.
    pub fn reset(&mut self) {
        *self = Self::new(self.keep_alive_ms);
    }

    fn set(&mut self, command: &SetFeatures, data: &[u8]) -> Result<u32, Status> {
        let invalid = Status::INVALID_FIELD.do_not_retry();
        if command.save {
            return Err(Status::FEATURE_NOT_SAVEABLE.do_not_retry());
        }
        match command.feature {
            FeatureId::ARBITRATION => self.arbitration = command.value,
            FeatureId::ERROR_RECOVERY => self.error_recovery = command.value,
            FeatureId::WRITE_ATOMICITY => self.write_atomicity = command.value,
            // There is one power state.
            FeatureId::POWER_MANAGEMENT if command.value & 0x1F != 0 => return Err(invalid),
            FeatureId::POWER_MANAGEMENT => {}
            FeatureId::TEMPERATURE_THRESHOLD => {
                let threshold = Threshold::of(command.value).ok_or(invalid)?;
                if threshold.is_over_composite() {
                    self.temperature_threshold_k = threshold.kelvin;
                }
            }
            FeatureId::NUMBER_OF_QUEUES => {
                let asked = NumberOfQueues::from_value(command.value);
                if asked.submission_z == u16::MAX || asked.completion_z == u16::MAX {
                    return Err(invalid);
                }
                let granted = asked.submission_z.min(asked.completion_z).min(IO_QUEUES_MAX - 1);
                self.queues = NumberOfQueues { submission_z: granted, completion_z: granted };
                return Ok(self.queues.value());
            }
            FeatureId::ASYNC_EVENT_CONFIGURATION => self.events = AsyncEventConfiguration(command.value),
            FeatureId::KEEP_ALIVE_TIMER => self.keep_alive_ms = keep_alive_rounded(command.value),
            FeatureId::HOST_BEHAVIOR => {
                let bytes = data.get(..HOST_BEHAVIOR_BYTES).ok_or(Status::SGL_DATA_LENGTH.do_not_retry())?;
                self.host_behavior.copy_from_slice(bytes);
            }
            // There is one combination of command sets, index 0.
            FeatureId::IO_COMMAND_SET_PROFILE if command.value & 0x1FF != 0 => {
                return Err(Status::IO_COMMAND_SET_COMBINATION.do_not_retry());
            }
            FeatureId::IO_COMMAND_SET_PROFILE => {}
            _ => return Err(invalid),
        }
        Ok(0)
    }

    fn get(&self, feature: FeatureId, cdw11: u32) -> Option<u32> {
        Some(match feature {
            FeatureId::ARBITRATION => self.arbitration,
            FeatureId::ERROR_RECOVERY => self.error_recovery,
            FeatureId::WRITE_ATOMICITY => self.write_atomicity,
            FeatureId::POWER_MANAGEMENT | FeatureId::IO_COMMAND_SET_PROFILE => 0,
            FeatureId::TEMPERATURE_THRESHOLD => match Threshold::of(cdw11)? {
                threshold if threshold.is_over_composite() => self.temperature_threshold_k.into(),
                // Under-temperature and single sensors have no threshold of their own.
                threshold if threshold.under => 0,
                _ => u16::MAX.into(),
            },
            FeatureId::NUMBER_OF_QUEUES => self.queues.value(),
            FeatureId::ASYNC_EVENT_CONFIGURATION => self.events.0,
            FeatureId::KEEP_ALIVE_TIMER => self.keep_alive_ms,
            FeatureId::HOST_BEHAVIOR => 0,
            _ => return None,
        })
    }
}

/// Rounds a keep alive time-out up to the granularity; 0, for none, stays 0.
pub fn keep_alive_rounded(milliseconds: u32) -> u32 {
    milliseconds.checked_next_multiple_of(KEEP_ALIVE_GRANULARITY_MS).unwrap_or(u32::MAX)
}

/// Dword 11 of the feature Temperature Threshold. Base 2.1, figure "Temperature Threshold – Command Dword 11".
struct Threshold {
    kelvin: u16,
    sensor: u8,
    under: bool,
}

impl Threshold {
    fn of(value: u32) -> Option<Self> {
        let [low, high, select, _] = value.to_le_bytes();
        let under = match (select >> 4) & 3 {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self { kelvin: u16::from_le_bytes([low, high]), sensor: select & 0xF, under })
    }

    fn is_over_composite(&self) -> bool {
        self.sensor == 0 && !self.under
    }
}

impl Subsystem {
    pub(super) fn set_features(&mut self, queue: QueuePair, entry: &SubmissionEntry, data: &[u8]) -> CommandResult {
        let association = self.associations.get_mut(&queue.controller_id).ok_or(Status::COMMAND_SEQUENCE)?;
        let command = SetFeatures::parse(entry);
        if command.feature == FeatureId::NUMBER_OF_QUEUES && !association.io_queues.is_empty() {
            return Err(Status::COMMAND_SEQUENCE.do_not_retry());
        }
        let result = association.features.set(&command, data)?;
        Answer::result(result.into())
    }

    pub(super) fn get_features(&self, queue: QueuePair, entry: &SubmissionEntry) -> CommandResult {
        let association = self.associations.get(&queue.controller_id).ok_or(Status::COMMAND_SEQUENCE)?;
        let command = GetFeatures::parse(entry);
        let initial = Features::new(association.features.keep_alive_ms);
        let features = match command.select {
            FeatureSelect::CURRENT | FeatureSelect::SUPPORTED => &association.features,
            // Nothing is saved, so the saved values are the defaults.
            FeatureSelect::DEFAULT | FeatureSelect::SAVED => &initial,
            _ => return Err(Status::INVALID_FIELD.do_not_retry()),
        };
        let value = features.get(command.feature, command.cdw11).ok_or(Status::INVALID_FIELD.do_not_retry())?;
        if command.select == FeatureSelect::SUPPORTED {
            return Answer::result(SUPPORTED.into());
        }
        match command.feature {
            FeatureId::HOST_BEHAVIOR if (entry.data.length.get() as usize) < HOST_BEHAVIOR_BYTES => {
                Err(Status::SGL_DATA_LENGTH.do_not_retry())
            }
            FeatureId::HOST_BEHAVIOR => Answer::data(features.host_behavior.to_vec(), 0),
            _ => Answer::result(value.into()),
        }
    }
}
