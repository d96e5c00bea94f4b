//! Bundles: the traffic of one site towards another, measured and paced as one.
