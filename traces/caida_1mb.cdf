# Sizes of requests (bytes, cumulative probability), linear between the points.
# Source: caida.cdf, every size above 1 MB taken as 1 MB: what is short enough never to fill a buffer.
0 0
10000 0.976
100000 0.995
1e6 0.999
1e6 1
