//! The programs whose figures can be read.

use super::now::{Programs, Scrapes, Silent, Whose};
use crate::text;
use ddlp_metrics::{LocalSocket, Scrape, local_sockets, read_address};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// Where a program serves its figures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Local(LocalSocket),
    Address(SocketAddr),
}

impl Place {
    /// Reads the figures; `None` if the program has ended.
    fn read(&self) -> io::Result<Option<Scrape>> {
        match self {
            Self::Address(address) => read_address(*address).map(Some),
            // A process may have been killed while a fork of it kept its socket.
            Self::Local(socket) => socket.read().or_else(|error| if has_ended(socket) { Ok(None) } else { Err(error) }),
        }
    }

    fn whose(&self) -> Whose {
        match self {
            Self::Address(address) => Whose { address: Some(address.to_string()), ..Whose::default() },
            Self::Local(socket) => Whose {
                process: Some(socket.process),
                command: fs::read(format!("/proc/{}/cmdline", socket.process)).ok().map(|line| command(&line)),
                address: None,
            },
        }
    }
}

fn has_ended(socket: &LocalSocket) -> bool {
    !Path::new(&format!("/proc/{}", socket.process)).exists()
}

/// Returns a command line, as `/proc` shows it, in one line.
fn command(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let words = line.split(|letter: char| letter == '\0' || letter.is_whitespace()).filter(|word| !word.is_empty());
    text::printable(&words.collect::<Vec<_>>().join(" "))
}

/// Reads the figures of all programs again and again.
pub struct Watch {
    addresses: Vec<SocketAddr>,
    before: BTreeMap<Place, Scrape>,
}

impl Watch {
    /// Watches this user's programs on this machine, and those at these addresses.
    pub fn new(addresses: &[SocketAddr]) -> Self {
        Self { addresses: addresses.to_vec(), before: BTreeMap::new() }
    }

    /// Reads all figures, and returns what they say about the time since the last call.
    ///
    /// # Errors
    ///
    /// The list of this user's programs cannot be read.
    pub fn look(&mut self) -> io::Result<Programs> {
        let local = local_sockets()?.into_iter().map(Place::Local);
        let places = local.chain(self.addresses.iter().copied().map(Place::Address));
        let (mut programs, mut latest) = (Programs::default(), BTreeMap::new());
        for place in places {
            match place.read() {
                Ok(Some(now)) => {
                    let scrapes = Scrapes { before: self.before.get(&place), now: &now };
                    if scrapes.is_loader() {
                        programs.loaders.push(scrapes.loader(place.whose()));
                    } else {
                        programs.agents.push(scrapes.agent(place.whose()));
                    }
                    latest.insert(place, now);
                }
                Ok(None) => {}
                Err(error) => programs.silent.push(Silent { whose: place.whose(), why: error.to_string() }),
            }
        }
        self.before = latest;
        Ok(programs)
    }
}
