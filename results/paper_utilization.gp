# Figures 3 and 4: utilisation of one model, as bars, and what the paper has for PyTorch as hollow marks.
columns = 1
width = 720
height = 430
load 'paper_common.gp'
set label 1 provenance at screen 0.99,0.012 right font ',9' textcolor rgb '#666666' noenhanced
set bmargin 5
set title heading noenhanced
set xlabel xname
set ylabel 'utilisation: live peak / reserved peak'
set yrange [0:1.05]
set key outside right top Left reverse
offset(i) = (i - 2.5) * 0.2
plot [-0.6:4.6] \
  rows('', 'bfc') using (column('position')):(-100):xticlabels(strcol('x')) notitle, \
  for [i = 1:4] rows('', word(policies, i)) using (column('position') + offset(i)):(column('utilization')):(0.18) with boxes linestyle i title title_of(word(policies, i)), \
  rows('', 'bfc') using (column('position') + offset(1)):(known('paper_utilization')) with points pointtype 4 pointsize 1.4 linewidth 2 linecolor rgb '#000000' title 'paper: PyTorch'
