//! Names beside points, so that none lies on another.

use super::svg::{FONT_SIZE, width_of};

/// A part of the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Area {
    fn around(point: (f64, f64), radius: f64) -> Self {
        Self { left: point.0 - radius, top: point.1 - radius, width: 2.0 * radius, height: 2.0 * radius }
    }

    fn overlaps(&self, other: &Self) -> bool {
        let apart = self.left >= other.left + other.width
            || other.left >= self.left + self.width
            || self.top >= other.top + other.height
            || other.top >= self.top + self.height;
        !apart
    }

    fn contains(&self, other: &Self) -> bool {
        other.left >= self.left
            && other.top >= self.top
            && other.left + other.width <= self.left + self.width
            && other.top + other.height <= self.top + self.height
    }

    /// Where a text in it begins.
    pub(crate) fn baseline(&self) -> (f64, f64) {
        /// Part of a line's height that is above its letters' feet.
        const ABOVE: f64 = 0.78;
        (self.left, self.top + self.height * ABOVE)
    }

    /// How far the nearest of it is from a point.
    pub(crate) fn distance(&self, point: (f64, f64)) -> f64 {
        let nearest = self.nearest(point);
        (nearest.0 - point.0).hypot(nearest.1 - point.1)
    }

    /// Its point that is nearest to another one.
    pub(crate) fn nearest(&self, point: (f64, f64)) -> (f64, f64) {
        (point.0.clamp(self.left, self.left + self.width), point.1.clamp(self.top, self.top + self.height))
    }
}

/// How far beside its point a name may be, and how many lines above or below.
const GAPS: [f64; 4] = [7.5, 30.0, 60.0, 100.0];
const MOST_LINES: i32 = 9;
const MARK_RADIUS: f64 = 6.0;
const LINE_HEIGHT: f64 = FONT_SIZE + 3.0;

/// A place for each name, within `paper`: the nearest to its point that is still free. What is in `lines` is better not
/// covered; other names and points are not.
pub(crate) fn place(points: &[(f64, f64)], names: &[&str], lines: &[Area], paper: Area) -> Vec<Area> {
    let marks: Vec<Area> = points.iter().map(|point| Area::around(*point, MARK_RADIUS)).collect();
    let mut taken: Vec<Area> = Vec::new();
    for (point, name) in points.iter().zip(names) {
        let candidates = candidates(*point, width_of(name));
        let is_on_paper = |area: &&Area| paper.contains(area);
        let is_apart =
            |area: &&Area| is_on_paper(area) && !taken.iter().chain(&marks).any(|other| area.overlaps(other));
        let is_free = |area: &&Area| is_apart(area) && !lines.iter().any(|line| area.overlaps(line));
        let find = |is_fit: &dyn Fn(&&Area) -> bool| candidates.iter().find(|area| is_fit(area)).copied();
        let chosen = find(&is_free).or_else(|| find(&is_apart)).or_else(|| find(&is_on_paper)).unwrap_or(candidates[0]);
        taken.push(chosen);
    }
    taken
}

/// Around the point, nearer ones first; of those that are as near, the one right of it.
fn candidates(point: (f64, f64), width: f64) -> Vec<Area> {
    let beside = GAPS.into_iter().flat_map(|gap| [point.0 + gap, point.0 - gap - width]);
    let lefts: Vec<f64> = beside.chain([point.0 - width / 2.0]).collect();
    let lines = (-MOST_LINES..=MOST_LINES).map(f64::from);
    let tops: Vec<f64> = lines.map(|line| point.1 - LINE_HEIGHT / 2.0 + line * LINE_HEIGHT).collect();
    let at = |top: f64| lefts.iter().map(move |left| Area { left: *left, top, width, height: LINE_HEIGHT });
    let mut all: Vec<Area> = tops.into_iter().flat_map(at).collect();
    all.sort_by(|one, other| one.distance(point).total_cmp(&other.distance(point)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Area = Area { left: 0.0, top: 0.0, width: 900.0, height: 500.0 };

    fn assert_apart(points: &[(f64, f64)], names: &[&str]) {
        let areas = place(points, names, &[], PAPER);
        for (number, area) in areas.iter().enumerate() {
            assert!(PAPER.contains(area), "{} is not on the paper", names[number]);
            for (other, second) in areas.iter().enumerate().skip(number + 1) {
                assert!(!area.overlaps(second), "{} lies on {}", names[number], names[other]);
            }
            assert!(!points.iter().any(|point| area.overlaps(&Area::around(*point, MARK_RADIUS))), "{}", names[number]);
        }
    }

    #[test]
    fn a_name_stands_right_of_its_point_if_it_can() {
        let area = place(&[(100.0, 100.0)], &["mps"], &[], PAPER)[0];
        assert!(area.left > 100.0 && area.top < 100.0 && area.top + area.height > 100.0, "{area:?}");
        let at_the_edge = place(&[(890.0, 100.0)], &["mps-priority"], &[], PAPER)[0];
        assert!(at_the_edge.left + at_the_edge.width < 890.0, "{at_the_edge:?}");
    }

    #[test]
    fn a_line_is_not_covered_if_there_is_room_elsewhere() {
        let line = Area { left: 100.0, top: 99.0, width: 50.0, height: 2.0 };
        let area = place(&[(100.0, 100.0)], &["mps"], &[line], PAPER)[0];
        assert!(!area.overlaps(&line), "{area:?}");
    }

    #[test]
    fn names_of_points_in_one_place_do_not_overlap() {
        let names = ["alone", "time-slicing", "mps", "mps-priority", "fixed-64", "fixed-96", "slo-aware@0.25", "fair"];
        assert_apart(&[(450.0, 250.0); 8], &names);
        assert_apart(&[(895.0, 495.0); 8], &names);
        let near: Vec<_> = (0..8).map(|number| (400.0 + f64::from(number) * 9.0, 250.0)).collect();
        assert_apart(&near, &names);
    }
}
