# Figure 13: reserved memory over batch sizes; a cross where requests found no memory.
columns = words(panels)
width = 430
height = 470
load 'paper_common.gp'
set multiplot layout 1,columns title heading noenhanced margins 0.06,0.985,0.16,0.79 spacing 0.05,0.1
set label 1 provenance at screen 0.99,0.012 right font ',9' textcolor rgb '#666666' noenhanced
eval legend_policies.legend_paper.'; '.legend(7, '× out of memory', '#000000')
unset key
set yrange [0:100]
set xlabel 'sequences a GPU'
do for [k = 1:columns] {
  panel = word(panels, k)
  set title panel noenhanced
  set ylabel (k == 1 ? 'reserved GiB' : '')
  plot [0:*] \
    for [i = 1:4] rows(panel, word(policies, i)) using (column('failed_allocs') == 0 ? column('batch') : NaN):(column('reserved_gib')) with linespoints linestyle i, \
    for [i = 1:4] rows(panel, word(policies, i)) using (column('batch')):(column('failed_allocs') > 0 ? 83 + 4 * (i - 1) : -100) with points linestyle i pointtype 2 pointsize 1.1, \
    rows(panel, 'bfc') using (column('batch')):(known('paper_reserved_gb')) with points pointtype 4 pointsize 1.4 linewidth 1.5 linecolor rgb '#000000', \
    rows(panel, 'gmlake') using (column('batch')):(known('paper_reserved_gb')) with points pointtype 8 pointsize 1.5 linewidth 1.5 linecolor rgb '#000000'
  unset label
}
unset multiplot
