# Sizes of requests (bytes, cumulative probability), linear between the points.
# Source: MIXED_CDF of the Bundler evaluation (EuroSys 2021), in the empirical traffic generator
# of the bundler-project/evaluation repository, MIT licence.
0 0
5000 0.9
1e6 1
