//! A gateway with one NIC whose packets go through user space, by a triangle of veths.

use crate::alone;
use crate::course;
use crate::vpc::{Vpc, ends};

#[test]
#[ignore = "a minute of real traffic: make test-gateway"]
fn long_course_of_triangle() {
    let _alone = alone();
    let vpc = Vpc::build([true; 2]);
    course::long("a triangle", &ends(&vpc, "user")).judge(&vpc.link.finish());
}
