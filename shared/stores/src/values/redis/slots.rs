//! Which node of a cluster has a key: the hash slots of Redis Cluster.

use redis::{FromRedisValue, Value};
use std::fmt;

/// Number of slots.
const SLOTS: u16 = 16_384;

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Returns the slot of a key: its CRC16 (XMODEM), modulo the number of slots. The keys of datasets have no braces,
/// which would name the part that counts.
pub fn slot_of(key: &str) -> u16 {
    let crc = key.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    });
    crc % SLOTS
}

/// The masters of a cluster by the last slot of their ranges, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotMap(Vec<(u16, u16, Place)>);

impl SlotMap {
    /// Reads the answer of `CLUSTER SLOTS` from the node at `asked`: ranges with their masters and replicas. `None` if
    /// it is malformed.
    pub fn parse(answer: &Value, asked: &Place) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        let range = |range: &Value| {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else { return None };
            let [host, Value::Int(port), ..] = &master[..] else { return None };
            // Without a name, the node is at the address at which it was asked.
            let host = Option::<String>::from_redis_value_ref(host).ok()?.filter(|host| !host.is_empty());
            let place = Place { host: host.unwrap_or_else(|| asked.host.clone()), port: (*port).try_into().ok()? };
            Some(((*first).try_into().ok()?, (*last).try_into().ok()?, place))
        };
        let mut ranges: Vec<(u16, u16, Place)> = ranges.iter().map(range).collect::<Option<_>>()?;
        ranges.sort_unstable_by_key(|(first, ..)| *first);
        Some(Self(ranges))
    }

    /// Creates the map of a master that has all slots.
    pub fn of_one(master: Place) -> Self {
        Self(vec![(0, SLOTS - 1, master)])
    }

    /// Returns the master of a slot, if one is known.
    pub fn master(&self, slot: u16) -> Option<&Place> {
        let number = self.0.partition_point(|(_, last, _)| *last < slot);
        self.0.get(number).filter(|(first, ..)| *first <= slot).map(|(.., place)| place)
    }

    /// Returns all masters.
    pub fn masters(&self) -> impl Iterator<Item = &Place> {
        self.0.iter().map(|(.., place)| place)
    }
}

/// Where a node sends a request on to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// The slot belongs to that node.
    Moved(Place),
    /// The key is asked for there this time, since its slot is being moved.
    Ask(Place),
}

impl Redirect {
    /// Reads an error of the node at `asked`: its code and what it says.
    pub fn parse(code: &str, details: &str, asked: &Place) -> Option<Self> {
        let (host, port) = details.split_whitespace().nth(1)?.rsplit_once(':')?;
        let host = if host.is_empty() { &asked.host } else { host };
        let place = Place { host: host.to_owned(), port: port.parse().ok()? };
        match code {
            "MOVED" => Some(Self::Moved(place)),
            "ASK" => Some(Self::Ask(place)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str, port: u16) -> Place {
        Place { host: host.to_owned(), port }
    }

    /// As `CLUSTER KEYSLOT` answers; the first is the example of the specification, whose CRC16 is 0x31c3.
    #[test]
    fn slots_are_those_of_the_servers() {
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of(""), 0);
    }

    #[test]
    fn each_slot_has_the_master_of_its_range() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range =
            |first, last, nodes: Vec<Value>| Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat());
        let answer = Value::Array(vec![
            range(9000, 16_383, vec![node(text("b"), 2), node(text("replica"), 3)]),
            range(0, 8000, vec![node(Value::Nil, 1)]),
        ]);
        let map = SlotMap::parse(&answer, &place("a", 7)).unwrap();
        for (slot, master) in
            [(0, Some(place("a", 1))), (8000, Some(place("a", 1))), (8500, None), (9000, Some(place("b", 2)))]
        {
            assert_eq!(map.master(slot), master.as_ref(), "{slot}");
        }
        assert_eq!(SlotMap::parse(&Value::Array(vec![Value::Int(1)]), &place("a", 7)), None);
        assert_eq!(SlotMap::parse(&Value::Array(vec![range(0, 1, vec![])]), &place("a", 7)), None);
    }

    #[test]
    fn redirections_name_a_node() {
        let asked = place("a", 7);
        assert_eq!(
            Redirect::parse("MOVED", "3999 127.0.0.1:6381", &asked),
            Some(Redirect::Moved(place("127.0.0.1", 6381)))
        );
        assert_eq!(Redirect::parse("ASK", "3999 :6381", &asked), Some(Redirect::Ask(place("a", 6381))));
        assert_eq!(Redirect::parse("MOVED", "3999", &asked), None);
        assert_eq!(Redirect::parse("ERR", "3999 a:1", &asked), None);
    }
}
