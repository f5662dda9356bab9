lakebed-profile 1
device NVIDIA A100 80GB
source GMLake's Table 1 (ASPLOS'24): 2 GiB from chunks of 2 MiB, 128 MiB and 1 GiB, relative to one cuMemAlloc of 2 GiB. ASSUMPTIONS: that unit is taken as 412.6 us, what an H200 takes; capacity is the nominal 80 GiB; granularity 2 MiB. The paper has no figures for unmap, release, free and the rest: they cost nothing here.
total_bytes 85899345920
usable_bytes 85899345920
granularity_bytes 2097152

# Relative time of the whole build x 412.6 us / number of chunks. The paper does not say how
# times depend on the number of live handles: one point a size.
cost create 2097152 0 7.29303
cost create 134217728 0 22.9509
cost create 1073741824 0 162.977
cost map 2097152 0 0.282051
cost map 134217728 0 0.257875
cost map 1073741824 0 0.4126
cost set_access 2097152 0 39.0036
cost set_access 134217728 0 211.457
cost set_access 1073741824 0 144.41
# The median of 0.003, 0.003 and 0.002.
cost address_reserve 2147483648 0 1.2378
cost malloc 2147483648 0 412.6
