//! What a module's PTX says about itself and its kernels.

use crate::code::Code;

/// A module, as far as loading and launching check it.
#[derive(Debug, PartialEq)]
pub(crate) struct Ptx {
    /// Version of PTX, such as (8, 0).
    pub version: (u32, u32),
    /// Oldest compute capability, such as 75.
    pub target: u32,
    pub entries: Vec<Entry>,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub name: String,
    /// Bytes of each parameter.
    pub parameters: Vec<usize>,
    /// Most threads of a block.
    pub threads_max: u32,
}

impl Ptx {
    /// Reads a module's text. Fails with what the driver answers, and a sentence.
    pub fn parse(text: &str) -> Result<Self, (Code, String)> {
        let lines: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim()).collect();
        let directive = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let version = directive(".version").ok_or((Code::INVALID_IMAGE, "no PTX: .version is missing".to_string()))?;
        let invalid = |what: &str| (Code::INVALID_PTX, format!("invalid PTX: {what}"));
        let version = version
            .split_once('.')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
            .ok_or_else(|| invalid(".version"))?;
        let target = directive(".target").and_then(|target| target.strip_prefix("sm_"));
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        let target = target.and_then(|target| digits(target).parse().ok()).ok_or_else(|| invalid(".target"))?;
        let code = lines.join("\n");
        if code.matches('{').count() != code.matches('}').count() {
            return Err(invalid("braces do not match"));
        }
        let entries = code.split(".entry").skip(1).map(|text| Entry::parse(text).ok_or_else(|| invalid(".entry")));
        Ok(Self { version, target, entries: entries.collect::<Result<_, _>>()? })
    }
}

impl Entry {
    /// Reads a kernel from the text behind `.entry`.
    fn parse(text: &str) -> Option<Self> {
        let (head, _) = text.split_once('{')?;
        let (name, parameters, attributes) = match head.split_once('(') {
            Some((name, rest)) => {
                let (parameters, attributes) = rest.split_once(')')?;
                (name, parameters, attributes)
            }
            None => {
                let at = head.find(char::is_whitespace).unwrap_or(head.len());
                (&head[..at], "", &head[at..])
            }
        };
        let parameters = parameters.split(',').map(str::trim).filter(|text| !text.is_empty());
        let sizes = |name: &str| {
            let text = attributes.split(name).nth(1)?.trim_start();
            let text = text.split(|c: char| c != ',' && c != ' ' && !c.is_ascii_digit()).next()?;
            text.split(',').map(|size| size.trim().parse::<u32>().ok()).product::<Option<u32>>()
        };
        Some(Self {
            name: name.trim().to_string(),
            parameters: parameters.map(parameter_bytes).collect::<Option<_>>()?,
            threads_max: sizes(".reqntid").or_else(|| sizes(".maxntid")).unwrap_or(1024).min(1024),
        })
    }
}

/// Returns the bytes of a parameter such as `.param .u64 name` or `.param .align 8 .b8 name[16]`.
fn parameter_bytes(text: &str) -> Option<usize> {
    let word = text.split_whitespace().find(|word| {
        let mut rest = word.chars();
        rest.next() == Some('.')
            && matches!(rest.next(), Some('b' | 'u' | 's' | 'f'))
            && rest.next().is_some_and(|c| c.is_ascii_digit())
    })?;
    let bytes = word[2..].parse::<usize>().ok()? / 8;
    let count = match text.split_once('[') {
        Some((_, count)) => count.trim_end_matches(']').trim().parse().ok()?,
        None => 1,
    };
    Some(bytes * count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "// a comment\n.version 8.0\n.target sm_75\n.address_size 64\n.visible .entry one(\n\
         .param .u64 one_param_0,\n.param .f32 one_param_1,\n.param .align 8 .b8 one_param_2[24]\n)\n\
         .maxntid 256, 1, 1\n{\nret;\n}\n.visible .entry two()\n{\nret;\n}\n";

    #[test]
    fn parameters_and_threads_are_read() {
        let ptx = Ptx::parse(TEXT).unwrap();
        assert_eq!((ptx.version, ptx.target), ((8, 0), 75));
        let entry = |name: &str, parameters: &[usize], threads_max| Entry {
            name: name.into(),
            parameters: parameters.to_vec(),
            threads_max,
        };
        assert_eq!(ptx.entries, [entry("one", &[8, 4, 24], 256), entry("two", &[], 1024)]);
    }

    #[test]
    fn what_is_no_ptx_is_refused() {
        let code = |text: &str| Ptx::parse(text).unwrap_err().0;
        assert_eq!(code("ELF"), Code::INVALID_IMAGE);
        assert_eq!(code(&TEXT.replace("8.0", "new")), Code::INVALID_PTX);
        assert_eq!(code(&TEXT.replace(".target sm_75", "")), Code::INVALID_PTX);
        assert_eq!(code(TEXT.trim_end().trim_end_matches('}')), Code::INVALID_PTX);
        assert_eq!(code(&TEXT.replace(".u64", ".what")), Code::INVALID_PTX);
    }
}
