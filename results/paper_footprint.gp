# Figure 5: what GPT-NeoX-20B has live over the events of its run, plain and with adapters and recomputation.
columns = 2
width = 520
height = 430
load 'paper_common.gp'
set multiplot layout 1,2 title header('title') noenhanced
set label 1 provenance at screen 0.99,0.012 right font ',9' textcolor rgb '#666666' noenhanced
set bmargin 5
set xlabel 'event (thousands)'
set yrange [0:80]
set autoscale xfix
unset key
do for [k = 1:2] {
  strategy = word('N LR', k)
  set title (k == 1 ? 'plain (N)' : 'adapters and recomputation (LR)') noenhanced
  set ylabel (k == 1 ? 'live GiB' : '')
  plot csv using (is('strategy', strategy) ? column('event') / 1000.0 : NaN):(column('live_gib')) with lines linestyle (k == 1 ? 4 : 1)
  unset label 1
}
unset multiplot
