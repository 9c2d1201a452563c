//! Places for connections: so many of all, and fewer of one address, so that no single machine keeps the others out.

use super::CONNECTIONS_MAX;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections of one address. A process of this machine is no stranger to the agent: all of loopback has no such limit.
const OF_ONE_ADDRESS_MAX: usize = CONNECTIONS_MAX / 4 * 3;

/// The places of an agent.
#[derive(Clone, Default)]
pub struct Places(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A place that is taken until it is dropped.
pub struct Place {
    places: Places,
    address: IpAddr,
}

impl Places {
    /// A place for a connection from this address, or how many there are at most.
    pub fn take(&self, address: IpAddr) -> Result<Place, usize> {
        let address = address.to_canonical();
        let mut taken = self.taken();
        if taken.values().sum::<usize>() >= CONNECTIONS_MAX {
            return Err(CONNECTIONS_MAX);
        }
        let of_address = taken.entry(address).or_default();
        if *of_address >= OF_ONE_ADDRESS_MAX && !address.is_loopback() {
            return Err(OF_ONE_ADDRESS_MAX);
        }
        *of_address += 1;
        Ok(Place { places: self.clone(), address })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(of_address) = taken.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &Places, address: &str, count: usize) -> Result<Vec<Place>, usize> {
        (0..count).map(|_| places.take(address.parse().unwrap())).collect()
    }

    #[test]
    fn one_address_does_not_get_all_places() {
        let places = Places::default();
        let stranger = take(&places, "192.0.2.1", OF_ONE_ADDRESS_MAX).unwrap();
        assert_eq!(take(&places, "192.0.2.1", 1).err(), Some(OF_ONE_ADDRESS_MAX));
        assert_eq!(take(&places, "::ffff:192.0.2.1", 1).err(), Some(OF_ONE_ADDRESS_MAX), "the same by another name");
        let left = take(&places, "192.0.2.2", CONNECTIONS_MAX - OF_ONE_ADDRESS_MAX).unwrap();
        assert_eq!(take(&places, "192.0.2.3", 1).err(), Some(CONNECTIONS_MAX));
        drop((stranger, left));
        assert!(places.taken().is_empty());
        assert_eq!(take(&places, "127.0.0.1", CONNECTIONS_MAX).unwrap().len(), CONNECTIONS_MAX);
    }
}
