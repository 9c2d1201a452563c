//! A sheet as one HTML page, which contains its images.

use super::{Sheet, SheetImage, ShowArgs};
use ddlp_pixels::encode;
use ddlp_report::Escaped;
use std::fmt::Write;

const STYLE: &str = "\
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5rem; color: #222; background: #fff }
table { border-collapse: collapse }
th { font-weight: 500; text-align: left; padding: 0 .5rem .25rem 0; color: #666 }
td { vertical-align: top; padding: 0 .5rem 1rem 0 }
img { display: block; image-rendering: pixelated }
.name { max-width: 16rem; overflow-wrap: anywhere; color: #666 }
.wrong { color: #a00; max-width: 16rem }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #111 } th, .name { color: #999 } }
";

/// Returns the page.
pub fn html(sheet: &Sheet, args: &ShowArgs) -> anyhow::Result<String> {
    let (dataset, pipeline) = (args.dataset.display().to_string(), &args.pipeline);
    let title = format!("{dataset}, prepared by {pipeline}, seed {}", args.seed);
    let title = Escaped(&title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>\n{STYLE}</style></head>\n<body><h1>{title}</h1>\n<table><thead><tr><th>sample</th>"
    );
    for column in 0..sheet.columns() {
        write!(page, "<th>{}</th>", Escaped(&Sheet::heading(column)))?;
    }
    page.push_str("</tr></thead><tbody>\n");
    for row in &sheet.rows {
        let (label, name) = (Escaped(&row.label), Escaped(&row.name));
        write!(page, "<tr><td><b>{label}</b><div class=\"name\">{}: {name}</div></td>", row.index)?;
        for image in &row.images {
            cell(&mut page, sheet, image)?;
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></body></html>\n");
    Ok(page)
}

fn cell(page: &mut String, sheet: &Sheet, image: &SheetImage) -> anyhow::Result<()> {
    match image {
        Ok(pixels) => {
            let scale = sheet.scale();
            let png = base64(&encode::png(pixels, sheet.width, sheet.height)?);
            let (width, height) = (sheet.width * scale, sheet.height * scale);
            write!(page, "<td><img width={width} height={height} alt=\"\" src=\"data:image/png;base64,{png}\"></td>")?;
        }
        Err(reason) => write!(page, "<td class=\"wrong\">{}</td>", Escaped(reason))?,
    }
    Ok(())
}

/// Encodes bytes as RFC 4648 says.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().enumerate().fold(0, |word, (at, &byte)| word | u32::from(byte) << (16 - 8 * at));
        for digit in 0..4 {
            let value = (word >> (18 - 6 * digit)) & 63;
            text.push(if digit <= chunk.len() { DIGITS[value as usize].into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xFB, 0xFF, 0xBF]), "+/+/");
    }
}
