# What allocators hold after each step of real training runs, above what is live at its peak.
# csv: memory.csv of results/regenerate.sh torch
load 'common.gp'
set multiplot layout 1,2
unset label 1
set xlabel 'step'
set ylabel 'GiB'
set key bottom right
gib(bytes) = bytes / 1073741824.0
of(run, allocator, name) = strcol('run') eq run && strcol('allocator') eq allocator ? gib(column(name)) : NaN
runs = "'opt-1.3b N varying' 'gpt2-xl LRO varying'"
do for [run in runs] {
  set title run noenhanced
  set yrange [0:*]
  if (run eq 'gpt2-xl LRO varying') { set label 1 provenance at screen 0.99,0.012 right font ',10' textcolor rgb '#666666' noenhanced }
  plot csv using 'step':(of(run, 'pytorch', 'active_peak_bytes')) with filledcurves y1=0 linecolor rgb '#c9dff0' title 'active under PyTorch, peak of the step', \
       csv using 'step':(of(run, 'pytorch', 'reserved_bytes')) with linespoints pointtype 7 pointsize 0.4 linewidth 2 linecolor rgb '#d55e00' title 'PyTorch', \
       csv using 'step':(of(run, 'pytorch:expandable', 'reserved_bytes')) with linespoints pointtype 7 pointsize 0.4 linewidth 2 linecolor rgb '#cc79a7' title 'PyTorch, expandable segments', \
       csv using 'step':(of(run, 'gmlake', 'reserved_bytes')) with linespoints pointtype 7 pointsize 0.4 linewidth 2 linecolor rgb '#009e73' title 'gmlake', \
       csv using 'step':(of(run, 'aliasheap', 'reserved_bytes')) with linespoints pointtype 7 pointsize 0.4 linewidth 2.5 linecolor rgb '#000000' title 'aliasheap (ours)'
}
unset multiplot
