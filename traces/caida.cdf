# Sizes of requests (bytes, cumulative probability), linear between the points.
# Source: CAIDA_CDF of the Bundler evaluation (EuroSys 2021), in the empirical traffic generator
# of the bundler-project/evaluation repository, MIT licence; after a CAIDA trace of 2016-01-21.
0 0
10000 0.976
100000 0.995
1e6 0.999
5e6 0.9998
1e8 1
