//! The figures as an SVG: similarity over the share of the bytes that are read.

use super::{Fidelity, GroupFigures};
use ddlp_report::Escaped;
use std::fmt::Write;

/// Size of the picture, and of the space left of the plot and around it, in pixels.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 60.0;
const AROUND: f64 = 50.0;

/// A line of the plot: its name, its colour, its dashes and its values.
type PlotLine = (&'static str, &'static str, &'static str, fn(&GroupFigures) -> Option<f64>);

const LINES: [PlotLine; 4] = [
    ("MS-SSIM, mean", "#2a7", "", |group| group.ms_ssim_mean),
    ("SSIM, mean", "#26c", "", |group| Some(group.ssim.as_ref()?.mean)),
    ("SSIM, 5th percentile", "#26c", "5 4", |group| Some(group.ssim.as_ref()?.percentile_5)),
    ("SSIM of chroma, mean", "#c52", "", |group| group.chroma_ssim_mean),
];

/// Returns the picture.
pub fn svg(fidelity: &Fidelity) -> String {
    let values = LINES.iter().flat_map(|(.., value)| fidelity.groups.iter().filter_map(value));
    // The plot begins at a tenth below all values.
    let bottom = (values.fold(1.0, f64::min) * 10.0).floor().min(9.0) / 10.0;
    let right = fidelity.groups.last().map_or(1.0, |group| group.share.max(1.0));
    let x = |share: f64| LEFT + share / right * (WIDTH - LEFT - AROUND);
    let y = |value: f64| HEIGHT - AROUND - (value - bottom) / (1.0 - bottom) * (HEIGHT - 2.0 * AROUND);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let title = format!("{}: fidelity of {} images", fidelity.file.display(), fidelity.cut);
    text(&mut svg, (LEFT, 20.0), "start", &title);
    text(&mut svg, (x(right / 2.0), HEIGHT - 12.0), "middle", "bytes read ÷ bytes of the sources");
    for tenth in 0..=10 {
        let at = f64::from(tenth) / 10.0;
        if at >= bottom - 1e-9 {
            rule(&mut svg, [x(0.0), y(at), x(right), y(at)]);
            text(&mut svg, (LEFT - 6.0, y(at) + 4.0), "end", &format!("{at:.1}"));
        }
        if tenth % 2 == 0 {
            text(&mut svg, (x(at), HEIGHT - AROUND + 18.0), "middle", &format!("{at:.1}"));
        }
    }
    for group in &fidelity.groups {
        rule(&mut svg, [x(group.share), y(bottom), x(group.share), y(1.0)]);
        text(&mut svg, (x(group.share), y(1.0) - 6.0), "middle", &group.group.to_string());
    }
    for (number, (name, color, dashes, value)) in LINES.iter().enumerate() {
        let points = fidelity.groups.iter().filter_map(|group| Some((x(group.share), y(value(group)?))));
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        let legend = HEIGHT - AROUND - 16.0 * (LINES.len() - number) as f64;
        let (from, to) = (WIDTH - AROUND - 190.0, WIDTH - AROUND - 160.0);
        for points in [path.trim_end(), &format!("{from},{legend} {to},{legend}")] {
            let _ = writeln!(
                svg,
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" \
                 stroke-dasharray=\"{dashes}\"/>"
            );
        }
        text(&mut svg, (to + 6.0, legend + 4.0), "start", name);
    }
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", Escaped(text));
}

fn rule(svg: &mut String, [x1, y1, x2, y2]: [f64; 4]) {
    let _ = writeln!(svg, "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#ddd\"/>");
}
