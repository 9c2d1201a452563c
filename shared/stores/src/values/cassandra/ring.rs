//! Which node of a cluster has a row: the Murmur3 partitioner's tokens and who owns them.

/// The token of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub i64);

impl Token {
    /// Returns the token of a row with this partition key, serialised.
    ///
    /// It is the first half of MurmurHash3 (x64, 128 bits, seed 0), as Cassandra's `Murmur3Partitioner` computes it of
    /// the key's bytes. Unlike others, Cassandra takes the bytes after the last whole block as signed numbers.
    pub fn of(key: &[u8]) -> Self {
        let (blocks, rest) = key.as_chunks::<16>();
        let (mut h1, mut h2) = (0_u64, 0_u64);
        for block in blocks {
            let halves = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| block[at + byte]));
            h1 = (h1 ^ scrambled_first(halves(0))).rotate_left(27).wrapping_add(h2).wrapping_mul(5);
            h1 = h1.wrapping_add(0x52dc_e729);
            h2 = (h2 ^ scrambled_second(halves(8))).rotate_left(31).wrapping_add(h1).wrapping_mul(5);
            h2 = h2.wrapping_add(0x3849_5ab5);
        }
        let signed = |bytes: &[u8]| {
            let shifted = bytes.iter().zip(0..).map(|(&byte, place)| i64::from(byte.cast_signed()) << (8 * place));
            shifted.fold(0, |all, byte| all ^ byte).cast_unsigned()
        };
        let (first, second) = rest.split_at(rest.len().min(8));
        h1 ^= scrambled_first(signed(first));
        h2 ^= scrambled_second(signed(second));
        (h1, h2) = (h1 ^ key.len() as u64, h2 ^ key.len() as u64);
        h1 = h1.wrapping_add(h2);
        h2 = h2.wrapping_add(h1);
        let token = mixed(h1).wrapping_add(mixed(h2)) as i64;
        // The least number stands for «no token».
        Self(if token == i64::MIN { i64::MAX } else { token })
    }
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

fn scrambled_first(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn scrambled_second(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn mixed(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

/// The nodes of a datacentre by their tokens.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    /// Each token with the number of its node, sorted.
    tokens: Vec<(Token, usize)>,
    nodes: usize,
}

impl Ring {
    /// Creates the ring of nodes with these tokens.
    pub fn new(tokens_of_nodes: &[Vec<Token>]) -> Self {
        let mut tokens = Vec::new();
        for (node, of_node) in tokens_of_nodes.iter().enumerate() {
            tokens.extend(of_node.iter().map(|token| (*token, node)));
        }
        tokens.sort_unstable();
        Self { tokens, nodes: tokens_of_nodes.len() }
    }

    /// Returns the numbers of all nodes, in the order in which a row is to be asked for. The owner of the row's range
    /// is the first; the next replicas follow it, if the racks do not decide otherwise. Any node can answer.
    pub fn order(&self, token: Token) -> Vec<usize> {
        let first = self.tokens.partition_point(|(end, _)| *end < token);
        let mut order = Vec::with_capacity(self.nodes);
        for (_, node) in self.tokens[first..].iter().chain(&self.tokens[..first]) {
            if !order.contains(node) {
                order.push(*node);
            }
            if order.len() == self.nodes {
                break;
            }
        }
        // A node without tokens can answer, too.
        order.extend((0..self.nodes).filter(|node| !order.contains(node)).collect::<Vec<_>>());
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `SELECT token(id)` answers for these keys in Cassandra 5.0.6.
    #[test]
    fn tokens_are_those_of_the_partitioner() {
        assert_eq!(Token::of(&[0; 16]), Token(5457549051747178710));
        assert_eq!(Token::of(&std::array::from_fn::<u8, 16, _>(|byte| byte as u8)), Token(4920504430128807728));
    }

    /// What `SELECT token(key)` answers for these keys, of the type blob, in Cassandra 5.0.6.
    #[test]
    fn keys_of_any_length_have_tokens() {
        let fifteen: [u8; 15] = std::array::from_fn(|byte| 200 + byte as u8);
        let twenty: [u8; 20] = std::array::from_fn(|byte| 120 + byte as u8);
        for (key, token) in [
            (&b"\x07"[..], -4312319111893697257),
            (b"\xf0\x9f\x92", 6967944931670782170),
            (b"\x80\x81\x82\x83\x84\x85\x86\x87", -6062263109623760877),
            (&[0xff; 9], 8434364767658694854),
            (&fifteen, 7705981495572405323),
            (&twenty, 8340232316303394752),
            (b"n01440764/\xc3\xa4.JPEG and more \xff\xfe", 1699615884749677619),
        ] {
            assert_eq!(Token::of(key), Token(token), "{key:x?}");
        }
    }

    #[test]
    fn the_owner_of_a_range_is_asked_first_and_every_node_at_last() {
        let ring = Ring::new(&[vec![Token(-50), Token(70)], vec![Token(0)], vec![Token(50)], vec![]]);
        for (token, order) in [(-60, [0, 1, 2, 3]), (-50, [0, 1, 2, 3]), (-49, [1, 2, 0, 3]), (1, [2, 0, 1, 3])] {
            assert_eq!(ring.order(Token(token)), order, "{token}");
        }
        assert_eq!(ring.order(Token(71)), ring.order(Token(-60)));
    }
}
