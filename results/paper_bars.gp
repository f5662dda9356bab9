# Figures 10 to 12: for each panel reserved memory above and utilisation below, and what the paper reads for PyTorch
# and GMLake as hollow marks.
columns = words(panels)
width = 430
height = 640
load 'paper_common.gp'
set multiplot layout 2,columns title heading noenhanced margins 0.06,0.985,0.11,0.84 spacing 0.05,0.1
set label 1 provenance at screen 0.99,0.012 right font ',9' textcolor rgb '#666666' noenhanced
eval legend_policies.legend_paper
unset key
offset(i) = (i - 2.5) * 0.2
last = xname eq 'model' ? 2.6 : 4.6
do for [row = 1:2] {
  do for [k = 1:columns] {
    panel = word(panels, k)
    quantity = row == 1 ? 'reserved_gib' : 'utilization'
    set title (row == 1 ? panel : '') noenhanced
    set ylabel (k > 1 ? '' : row == 1 ? 'reserved GiB' : 'utilisation')
    set xlabel (row == 2 ? xname : '')
    if (row == 1) { set yrange [0:85]; set ytics 20 } else { set yrange [0:1.05]; set ytics 0.2 }
    plot [-0.6:last] \
      rows(panel, 'bfc') using (column('position')):(-100):xticlabels(strcol('x')), \
      for [i = 1:4] rows(panel, word(policies, i)) using (column('position') + offset(i)):(column(quantity)):(0.18) with boxes linestyle i, \
      rows(panel, 'bfc') using (column('position') + offset(1)):(known(row == 1 ? 'paper_reserved_gb' : 'paper_utilization')) with points pointtype 4 pointsize 1.3 linewidth 1.5 linecolor rgb '#000000', \
      rows(panel, 'gmlake') using (column('position') + offset(3)):(known(row == 1 ? 'paper_reserved_gb' : 'paper_utilization')) with points pointtype 8 pointsize 1.4 linewidth 1.5 linecolor rgb '#000000'
    unset label
  }
}
unset multiplot
