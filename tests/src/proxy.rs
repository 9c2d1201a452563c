//! A relay between loader and agent that follows a fault plan.
//!
//! The relay passes PDUs on one by one. The plan sees each PDU and may change, delay or drop it, or cut the connection
//! in the middle of it. It simulates faults of the network: neither loader nor agent knows of it.

use ddlp_nvme::cp::ExecuteProgram;
use ddlp_nvme::tcp::COMMON_BYTES;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Direction of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the loader to the agent.
    ToAgent,
    /// From the agent to the loader.
    ToLoader,
}

/// The plan's decision about a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The PDU is passed on, with the plan's changes.
    Pass,
    /// The PDU never arrives.
    Drop,
    /// The PDU arrives later, and everything behind it on the connection waits.
    Delay(Duration),
    /// Only the PDU's first bytes arrive; then the connection ends.
    Cut(usize),
}

/// PDU type of the answer to a connection's first PDU.
pub const IC_RESP: u8 = 1;
/// PDU type of a command.
pub const CAPSULE_COMMAND: u8 = 4;
/// PDU type of a completion.
pub const CAPSULE_RESPONSE: u8 = 5;
/// PDU type of data to the loader.
pub const C2H_DATA: u8 = 7;

/// A PDU, and the connection that it is on.
pub struct Pdu<'a> {
    /// Direction.
    pub way: Way,
    /// Number of the connection.
    pub connection: u64,
    /// All bytes of the PDU.
    pub bytes: &'a mut Vec<u8>,
    commands: &'a Mutex<HashMap<u16, [u8; 64]>>,
}

impl Pdu<'_> {
    /// Returns the PDU type.
    pub fn kind(&self) -> u8 {
        self.bytes[0]
    }

    /// Returns the submission queue entry of a command, or of the command that a completion or data PDU answers.
    pub fn command(&self) -> Option<[u8; 64]> {
        match self.kind() {
            CAPSULE_COMMAND => self.bytes.get(8..72)?.try_into().ok(),
            CAPSULE_RESPONSE => self.lookup(20),
            C2H_DATA => self.lookup(8),
            _ => None,
        }
    }

    fn lookup(&self, at: usize) -> Option<[u8; 64]> {
        let id = u16::from_le_bytes(self.bytes.get(at..at + 2)?.try_into().ok()?);
        self.commands.lock().expect("no panic while the commands are locked").get(&id).copied()
    }

    /// Returns whether the PDU is an Execute Program or answers one.
    pub fn is_execute(&self) -> bool {
        self.command().is_some_and(|entry| entry[0] == 0x01 && entry[4..8] == 3u32.to_le_bytes())
    }

    /// Returns the slot of an Execute Program, or of the one that the PDU answers.
    pub fn slot(&self) -> Option<u64> {
        let command = self.command().filter(|_| self.is_execute())?;
        Some(ExecuteProgram::parse(zerocopy::transmute_ref!(&command)).parameter2)
    }

    /// Returns whether the PDU is a successful completion.
    pub fn is_success(&self) -> bool {
        self.kind() == CAPSULE_RESPONSE
            && self.bytes.get(22..24).is_some_and(|status| status[0] >> 1 == 0 && status[1] == 0)
    }

    /// Returns whether the PDU is a read of the result namespace or answers one.
    pub fn is_result_read(&self) -> bool {
        self.command().is_some_and(|entry| entry[0] == 0x02 && entry[4..8] == 2u32.to_le_bytes())
    }

    /// Sets the status of a completion (SCT and SC, without the phase tag).
    pub fn set_status(&mut self, status: u16) {
        assert_eq!(self.kind(), CAPSULE_RESPONSE);
        self.bytes[22..24].copy_from_slice(&(status << 1).to_le_bytes());
    }
}

type Plan = dyn FnMut(&mut Pdu<'_>) -> Fate + Send;

/// The running relay. Its connections end with the process.
pub struct Proxy {
    address: SocketAddr,
}

impl Proxy {
    /// Relays to the agent at `agent` and follows the plan.
    pub fn start(agent: &str, plan: impl FnMut(&mut Pdu<'_>) -> Fate + Send + 'static) -> Self {
        let agent = agent.to_string();
        Self::start_to(move || agent.clone(), plan)
    }

    /// Relays to the address that `agent` returns whenever the loader connects, and follows the plan.
    pub fn start_to(
        agent: impl Fn() -> String + Send + 'static,
        plan: impl FnMut(&mut Pdu<'_>) -> Fate + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let plan = Arc::new(Mutex::new(plan));
        std::thread::spawn(move || {
            static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
            for loader in listener.incoming().map_while(Result::ok) {
                let Ok(upstream) = TcpStream::connect(agent()) else { continue };
                relay(loader, upstream, CONNECTIONS.fetch_add(1, Ordering::Relaxed), plan.clone());
            }
        });
        Self { address }
    }

    /// Returns the address to which the loader connects.
    pub fn address(&self) -> String {
        self.address.to_string()
    }
}

fn relay(loader: TcpStream, agent: TcpStream, connection: u64, plan: Arc<Mutex<Plan>>) {
    for socket in [&loader, &agent] {
        socket.set_nodelay(true).expect("a TCP socket");
    }
    let commands = Arc::new(Mutex::new(HashMap::new()));
    let clone = |socket: &TcpStream| socket.try_clone().expect("a socket can be shared");
    let ways = [(Way::ToAgent, clone(&loader), clone(&agent)), (Way::ToLoader, agent, loader)];
    for (way, from, to) in ways {
        let (commands, plan) = (commands.clone(), plan.clone());
        std::thread::spawn(move || {
            pump(way, &from, &to, connection, &commands, &plan);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}

/// Passes PDUs on until either side is gone or the plan cuts the connection.
fn pump(
    way: Way,
    mut from: &TcpStream,
    mut to: &TcpStream,
    connection: u64,
    commands: &Mutex<HashMap<u16, [u8; 64]>>,
    plan: &Mutex<Plan>,
) -> Option<()> {
    loop {
        let mut bytes = vec![0; COMMON_BYTES];
        from.read_exact(&mut bytes).ok()?;
        let total = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
        bytes.resize(total.max(COMMON_BYTES), 0);
        from.read_exact(&mut bytes[COMMON_BYTES..]).ok()?;
        if bytes[0] == CAPSULE_COMMAND && bytes.len() >= 72 {
            let entry: [u8; 64] = bytes[8..72].try_into().ok()?;
            let id = u16::from_le_bytes([entry[2], entry[3]]);
            commands.lock().expect("no panic while the commands are locked").insert(id, entry);
        }
        let fate = {
            let mut plan = plan.lock().expect("a plan does not panic");
            plan(&mut Pdu { way, connection, bytes: &mut bytes, commands })
        };
        match fate {
            Fate::Pass => {}
            Fate::Drop => continue,
            // The sleep is the fault.
            Fate::Delay(time) => std::thread::sleep(time),
            Fate::Cut(first) => {
                let _ = to.write_all(&bytes[..first.min(bytes.len())]);
                return None;
            }
        }
        to.write_all(&bytes).ok()?;
    }
}
