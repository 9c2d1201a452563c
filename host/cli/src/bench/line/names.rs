//! The addresses that the servers of a Redis cluster announce, changed into those of the lines to them.

use std::net::SocketAddr;

/// Where the servers of a cluster say that they are, and where their lines begin.
pub struct Names(pub Vec<Name>);

/// The place of a server.
pub struct Name {
    /// As in the answer to `CLUSTER SLOTS`: host and port as two elements of a list.
    in_lists: [Vec<u8>; 2],
    /// As in the errors `MOVED` and `ASK`.
    in_errors: [Vec<u8>; 2],
}

impl Name {
    /// Of a server, `HOST:PORT`, and the line to it.
    pub fn new((server, line): (&String, &SocketAddr)) -> Self {
        let in_list = |place: &str| {
            let (host, port) = place.rsplit_once(':').unwrap_or((place, ""));
            format!("${}\r\n{host}\r\n:{port}\r\n", host.len()).into_bytes()
        };
        let in_error = |place: &str| format!(" {place}\r\n").into_bytes();
        let places = [server.clone(), line.to_string()];
        Self {
            in_lists: places.each_ref().map(|place| in_list(place)),
            in_errors: places.map(|place| in_error(&place)),
        }
    }
}

impl Names {
    /// Changes the names in a list or an error, which are short enough for one piece.
    pub fn change(&self, piece: &mut Vec<u8>) {
        for Name { in_lists, in_errors } in &self.0 {
            let [from, to] = match piece.first() {
                Some(b'*') => in_lists,
                Some(b'-') => in_errors,
                _ => return,
            };
            let mut at = 0;
            while let Some(found) = piece[at..].windows(from.len()).position(|bytes| bytes == from) {
                piece.splice(at + found..at + found + from.len(), to.iter().copied());
                at += found + to.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_announces_the_lines_to_its_servers() {
        let line = SocketAddr::from(([127, 0, 0, 1], 40_001));
        let names = Names(vec![Name::new((&"10.0.0.7:7000".to_owned(), &line))]);
        let changed = |piece: &str| {
            let mut piece = piece.as_bytes().to_vec();
            names.change(&mut piece);
            String::from_utf8(piece).unwrap()
        };
        let master = |host: &str, port| format!("*3\r\n${}\r\n{host}\r\n:{port}\r\n$2\r\nid\r\n", host.len());
        let slots = |one: String| format!("*2\r\n*4\r\n:0\r\n:99\r\n{one}*4\r\n:0\r\n:99\r\n{one}");
        assert_eq!(changed(&slots(master("10.0.0.7", 7000))), slots(master("127.0.0.1", 40_001)));
        assert_eq!(changed(&slots(master("10.0.0.7", 70_001))), slots(master("10.0.0.7", 70_001)));
        assert_eq!(changed("-MOVED 3 10.0.0.7:7000\r\n"), "-MOVED 3 127.0.0.1:40001\r\n");
        assert_eq!(changed("$16\r\n 10.0.0.7:7000\r\n"), "$16\r\n 10.0.0.7:7000\r\n");
    }
}
