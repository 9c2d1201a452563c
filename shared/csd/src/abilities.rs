//! Lists of abilities as they cross the link, and the comparison of two machines' lists.

use ddlp_dataset::{Decoder, Decoders};
use ddlp_pixels::{Ability, AbilityNumber};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most abilities in a list.
pub const ABILITIES_MAX: usize = 165;
/// Bytes of one ability in a list.
pub const ABILITY_BYTES: usize = 24;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireAbility {
    number: U16,
    reserved: [u8; 6],
    digest: [u8; 16],
}
const _: () = assert!(size_of::<WireAbility>() == ABILITY_BYTES);

/// Encodes a list.
///
/// # Panics
/// When the list has more than [`ABILITIES_MAX`] abilities.
pub(crate) fn to_bytes(abilities: &[Ability]) -> Vec<u8> {
    assert!(abilities.len() <= ABILITIES_MAX, "a list of {} abilities", abilities.len());
    let wire = |ability: &Ability| {
        let &Ability { number: AbilityNumber(number), digest } = ability;
        WireAbility { number: number.into(), reserved: [0; 6], digest }
    };
    abilities.iter().flat_map(|ability| wire(ability).as_bytes().to_vec()).collect()
}

/// Decodes a list. Returns `None` unless it is whole, not too long, and in the order of its numbers.
pub(crate) fn parse(bytes: &[u8]) -> Option<Vec<Ability>> {
    let list = <[WireAbility]>::ref_from_bytes(bytes).ok().filter(|list| list.len() <= ABILITIES_MAX)?;
    let ability = |wire: &WireAbility| Ability { number: AbilityNumber(wire.number.get()), digest: wire.digest };
    let abilities: Vec<Ability> = list.iter().map(ability).collect();
    abilities.is_sorted_by(|one, next| one.number < next.number).then_some(abilities)
}

/// An ability that one machine needs, and that the other lacks or has with another digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The ability that is needed.
    pub needed: Ability,
    /// The other machine's ability of this number, if it has one.
    pub found: Option<Ability>,
}

/// Returns the first of the needed abilities on which two machines disagree. `abilities` belong to the machine that has
/// to do the work.
pub fn disagreement(needs: &[Ability], abilities: &[Ability]) -> Option<Disagreement> {
    needs.iter().find(|&need| !abilities.contains(need)).map(|&needed| {
        let found = abilities.iter().copied().find(|ability| ability.number == needed.number);
        Disagreement { needed, found }
    })
}

/// The decoders that a drive may use for a host: those on which both agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgreedDecoders {
    /// The decoders.
    pub decoders: Decoders,
    /// Whether these include every file format of the host. If not, a file whose format the drive does not know may be
    /// one that the host can decode.
    pub include_all_formats: bool,
}

impl AgreedDecoders {
    /// Agreement on everything, as between two machines of one version.
    pub const ALL: Self = Self { decoders: Decoders::ALL, include_all_formats: true };

    /// Compares the host's decoders with the drive's abilities.
    pub fn of(hosts: &[Ability], drives: &[Ability]) -> Self {
        let is_agreed = |number: AbilityNumber| {
            let mut agreed = hosts.iter().filter(|ability| ability.number == number);
            agreed.any(|ability| drives.contains(ability))
        };
        let decoders: Decoders = Decoder::all().filter(|decoder| is_agreed(decoder.ability())).collect();
        let mut formats = hosts.iter().map(|ability| ability.number).filter(|number| number.is_format());
        Self { decoders, include_all_formats: formats.all(is_agreed) }
    }

    /// Returns whether the drive may leave a sample to the host because of this decoder
    /// ([`Outcome::OtherDecoder`](crate::slot::Outcome::OtherDecoder)). It may not if both agree on the decoder, or if
    /// the number is no decoder's. A decoder that this version does not know may be one of the drive's version.
    pub fn may_leave(&self, decoder: Option<AbilityNumber>) -> bool {
        let Some(number) = decoder else { return !self.include_all_formats };
        match Decoder::of_ability(number) {
            Some(known) => !self.decoders.contains(known),
            None => number.is_format() || number.is_form(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_dataset::abilities;
    use ddlp_dataset::pack::StoredForm;
    use ddlp_pixels::Format;

    #[test]
    fn a_list_survives_the_link_and_nothing_else_is_a_list() {
        let bytes = to_bytes(abilities());
        assert_eq!(bytes.len(), abilities().len() * ABILITY_BYTES);
        assert_eq!(parse(&bytes).as_deref(), Some(abilities()));
        assert_eq!(parse(&bytes[..bytes.len() - 1]), None);
        let twice = [&bytes[..ABILITY_BYTES], &bytes[..ABILITY_BYTES]].concat();
        assert_eq!(parse(&twice), None, "numbers ascend");
        let long: Vec<u8> = (0..=ABILITIES_MAX as u16)
            .flat_map(|number| to_bytes(&[Ability { number: AbilityNumber(number), digest: [0; 16] }]))
            .collect();
        assert_eq!(parse(&long), None);
        assert!(parse(&long[ABILITY_BYTES..]).is_some());
    }

    #[test]
    fn only_what_is_needed_has_to_agree() {
        let (needed, other) = (abilities()[3], Ability { digest: [1; 16], ..abilities()[3] });
        assert_eq!(disagreement(&[needed], abilities()), None);
        let without: Vec<Ability> = abilities().iter().copied().filter(|&ability| ability != needed).collect();
        assert_eq!(disagreement(&[needed], &without), Some(Disagreement { needed, found: None }));
        assert_eq!(disagreement(&[needed], &[other]), Some(Disagreement { needed, found: Some(other) }));
        assert_eq!(disagreement(&[abilities()[0]], &without), None);
    }

    #[test]
    fn a_drive_may_leave_to_the_host_what_needs_a_decoder_that_is_not_agreed_on() {
        let (jpeg, gif) = (Decoder::File(Format::Jpeg), Decoder::File(Format::Gif));
        let without_gif = AgreedDecoders {
            decoders: Decoder::all().filter(|&decoder| decoder != gif).collect(),
            include_all_formats: false,
        };
        let [jpeg, gif, unknown] = [Some(jpeg.ability()), Some(gif.ability()), None];
        for (agreed, number, may) in [
            (without_gif, gif, true),
            (without_gif, jpeg, false),
            (without_gif, unknown, true),
            (AgreedDecoders::ALL, gif, false),
            (AgreedDecoders::ALL, unknown, false),
            (AgreedDecoders::ALL, Some(AbilityNumber(0x02FF)), true),
            (AgreedDecoders::ALL, Some(AbilityNumber::of_form(9)), true),
            (AgreedDecoders::ALL, Some(Decoder::Form(StoredForm::Raw).ability()), false),
            (without_gif, Some(AbilityNumber::RENDERING), false),
            (without_gif, Some(AbilityNumber(0x7777)), false),
        ] {
            assert_eq!(agreed.may_leave(number), may, "{number:?}, {agreed:?}");
        }
    }

    #[test]
    fn a_decoder_that_differs_is_not_agreed_on() {
        let decoders: Vec<Ability> = abilities().iter().copied().filter(|ability| ability.number.0 >= 0x0200).collect();
        assert_eq!(AgreedDecoders::of(&decoders, abilities()), AgreedDecoders::ALL);
        let with_other = |number: AbilityNumber| {
            let mut list = decoders.clone();
            list.iter_mut().find(|ability| ability.number == number).unwrap().digest = [1; 16];
            AgreedDecoders::of(&decoders, &list)
        };
        let agreed = with_other(Decoder::File(Format::Png).ability());
        assert!(!agreed.include_all_formats && !agreed.decoders.contains(Decoder::File(Format::Png)));
        assert!(agreed.decoders.contains(Decoder::File(Format::Jpeg)));
        let agreed = with_other(Decoder::Form(StoredForm::Rows).ability());
        assert!(agreed.include_all_formats && !agreed.decoders.contains(Decoder::Form(StoredForm::Rows)));
        let newer = [&decoders[..], &[Ability { number: AbilityNumber(0x02FF), digest: [3; 16] }]].concat();
        let agreed = AgreedDecoders::of(&newer, abilities());
        assert_eq!((agreed.decoders, agreed.include_all_formats), (Decoders::ALL, false));
        let agreed = AgreedDecoders::of(&decoders, &newer);
        assert_eq!(agreed, AgreedDecoders::ALL, "what the host does not know does not matter");
    }
}
