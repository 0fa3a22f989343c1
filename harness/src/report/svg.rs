//! Charts as inline SVG: axes, lines, points and bars, nothing else.

use std::fmt::Write;

use super::junit::escape;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 230.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 44.0;

/// A linear axis narrower than this shows a single value.
const NARROWEST: f64 = 1e-100;

/// Colours that differ for most eyes.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f", "#000000"];

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq)]
pub enum Mark {
    Line,
    Dashed,
    Points,
    Bars,
}

/// One set of points with a name.
pub struct Series {
    pub name: String,
    pub mark: Mark,
    pub points: Vec<(f64, f64)>,
}

/// One direction of a chart.
pub struct Axis {
    pub title: &'static str,
    pub log: bool,
    /// The axis begins at zero.
    pub zero: bool,
}

struct Scale {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let usable = values.filter(|v| v.is_finite() && (!axis.log || *v > 0.0));
        let (mut low, mut high) = usable.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        if axis.zero {
            (low, high) = (0.0, high.max(0.0));
        }
        if axis.log {
            (low, high) = (low / 1.15, high * 1.15);
        } else {
            let width = (high - low).max(high.abs() * 1e-3);
            // A single value may be zero, and still needs some room.
            let margin = 0.05 * if width > NARROWEST { width } else { 1.0 };
            (low, high) = (if axis.zero { 0.0 } else { low - margin }, high + margin);
        }
        Self { low, high, log: axis.log, from, to }
    }

    fn at(&self, v: f64) -> f64 {
        let share = if self.log {
            (v.max(1e-12) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (v - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.low.log10().floor() as i32..=self.high.log10().ceil() as i32).map(|e| 10f64.powi(e));
            let wide = self.high / self.low > 100.0;
            let steps: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = decades.flat_map(|d| steps.iter().map(move |s| d * s));
            return all.filter(|v| (self.low..=self.high).contains(v)).collect();
        }
        let raw = (self.high - self.low) / 5.0;
        let power = 10f64.powf(raw.log10().floor());
        let step = power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * power >= raw).unwrap_or(10.0);
        if !step.is_normal() {
            return Vec::new();
        }
        let first = (self.low / step).ceil() as i64;
        (first..).map(|k| k as f64 * step).take_while(|v| *v <= self.high).collect()
    }
}

fn label(v: f64) -> String {
    let text = if v != 0.0 && (v.abs() < 0.01 || v.abs() >= 1e6) { format!("{v:.0e}") } else { format!("{v:.2}") };
    if text.contains('.') && !text.contains('e') {
        return text.trim_end_matches('0').trim_end_matches('.').to_string();
    }
    text
}

/// A chart of these series.
pub fn chart(title: &str, x: &Axis, y: &Axis, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|s| s.points.iter());
    let sx = Scale::new(x, points().map(|p| p.0), LEFT, WIDTH - RIGHT);
    let sy = Scale::new(y, points().map(|p| p.1), HEIGHT - BOTTOM, TOP);
    let mut out = format!("<figure><figcaption>{}</figcaption>", escape(title));
    let _ = write!(out, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">", escape(title));
    axes(&mut out, (x, &sx), (y, &sy));
    for (k, s) in series.iter().enumerate() {
        let colour = COLOURS[k % COLOURS.len()];
        draw(&mut out, s, colour, &sx, &sy);
        let (at, name) = (TOP + 14.0 * (k as f64 + 1.0), escape(&s.name));
        let right = WIDTH - RIGHT + 10.0;
        let _ = write!(out, "<rect x=\"{right}\" y=\"{}\" width=\"9\" height=\"9\" fill=\"{colour}\"/>", at - 8.0);
        let _ = write!(out, "<text x=\"{}\" y=\"{at}\">{name}</text>", right + 13.0);
    }
    out.push_str("</svg></figure>\n");
    out
}

fn axes(out: &mut String, (x, sx): (&Axis, &Scale), (y, sy): (&Axis, &Scale)) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for v in sx.ticks() {
        let at = sx.at(v);
        let _ = write!(out, "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom}\"/>");
        let _ = write!(out, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>", bottom + 14.0, label(v));
    }
    for v in sy.ticks() {
        let at = sy.at(v);
        let _ = write!(out, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>");
        let _ = write!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", LEFT - 5.0, at + 4.0, label(v));
    }
    let middle = (LEFT + right) / 2.0;
    let _ =
        write!(out, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>", HEIGHT - 8.0, escape(x.title));
    let up = (TOP + bottom) / 2.0;
    let _ = write!(
        out,
        "<text x=\"14\" y=\"{up}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {up})\">{}</text>",
        escape(y.title)
    );
    let _ = write!(out, "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>");
}

fn draw(out: &mut String, s: &Series, colour: &str, sx: &Scale, sy: &Scale) {
    let points = s.points.iter().filter(|p| p.0.is_finite() && p.1.is_finite());
    let places: Vec<(f64, f64)> = points.map(|p| (sx.at(p.0), sy.at(p.1))).collect();
    match s.mark {
        Mark::Line | Mark::Dashed => {
            let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let dash = if s.mark == Mark::Dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            let path = path.join(" ");
            let _ = write!(
                out,
                "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dash}/>"
            );
        }
        Mark::Bars => {
            let width = (0.8 * (WIDTH - LEFT - RIGHT) / places.len().max(1) as f64).min(24.0);
            let bottom = HEIGHT - BOTTOM;
            for (x, y) in &places {
                let (left, height) = (x - width / 2.0, (bottom - y).max(0.0));
                let _ = write!(
                    out,
                    "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
                );
            }
        }
        Mark::Points => {}
    }
    if s.mark == Mark::Line || s.mark == Mark::Points {
        for (x, y) in &places {
            let _ = write!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.2\" fill=\"{colour}\"/>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_of_one_value_has_few_ticks() {
        for value in [0.0, 1e-310, 1.0, -7.0, 1e300, -1e300] {
            for zero in [false, true] {
                let scale = Scale::new(&Axis { title: "", log: false, zero }, [value; 2].into_iter(), 0.0, 1.0);
                assert!((1..20).contains(&scale.ticks().len()) && scale.at(value).is_finite(), "{value}, {zero}");
            }
        }
    }

    #[test]
    fn charts_hold_numbers_only_and_close_their_tags() {
        let axis = |log| Axis { title: "t < u", log, zero: false };
        let series = |points| vec![Series { name: "a & b".into(), mark: Mark::Line, points }];
        let (one, at_zero) = (vec![(1.0, 1.0)], vec![(0.0, 0.0), (0.0, 0.0)]);
        for points in [vec![], one, at_zero, vec![(0.0, 1e-310)], vec![(1.0, 5.0), (1000.0, 0.0), (10.0, f64::NAN)]] {
            for log in [false, true] {
                let text = chart("title", &axis(log), &axis(log), &series(points.clone()));
                assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
                assert!(text.contains("a &amp; b") && text.contains("t &lt; u"));
                assert!(text.ends_with("</svg></figure>\n"));
            }
        }
    }
}
