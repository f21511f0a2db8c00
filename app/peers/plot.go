package main

import (
	"fmt"
	"image/color"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// draw draws how long each peer makes its herds wait: a mark at the median of the repeats, and a line from the lowest to the
// highest. The file's ending says whether as SVG or PNG.
func (r results) draw(file string) error {
	shapes := r.shapes()
	if len(shapes) == 0 {
		return fmt.Errorf("draw %s: no herd was measured", file)
	}
	p := plot.New()
	p.Title.Text = "Extra wait over one fill, p99, and backend calls for each expiry"
	p.Title.Padding = vg.Points(8)
	p.BackgroundColor = color.White // it is looked at on dark pages, too
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans"
	}
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades{}
	p.Legend.Top, p.Legend.Padding = true, vg.Points(3)
	p.Legend.XOffs = -vg.Points(6)
	p.Add(plotter.NewGrid())

	names := r.names()
	for i, shape := range shapes {
		one := points{}
		for _, h := range r.Herds {
			if h.Shape != shape || h.P99.Max <= 0 {
				continue
			}
			y := float64(slices.Index(names, "  "+h.Peer)) + 0.22*(float64(len(shapes)-1)/2-float64(i))
			one.at = append(one.at, plotter.XY{X: float64(max(least, h.P99.Median)), Y: y})
			one.errors = append(one.errors, struct{ Low, High float64 }{
				float64(max(least, h.P99.Median) - max(least, h.P99.Min)), float64(h.P99.Max - h.P99.Median)})
			one.labels = append(one.labels, fmt.Sprintf("  %.3g", float64(h.Calls.Median)))
		}
		if err := one.add(p, shape, i); err != nil {
			return fmt.Errorf("draw %s: %w", file, err)
		}
	}
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(names))-0.4
	p.X.Min, p.X.Max = decadesAround(p.X.Min, p.X.Max)
	if err := p.Save(20*vg.Centimeter, vg.Length(4+len(names))*1.1*vg.Centimeter, file); err != nil {
		return fmt.Errorf("draw %s: %w", file, err)
	}
	return nil
}

// least is what a logarithmic scale has instead of nothing, in milliseconds.
const least = 0.1

// names are the peers', the first one on top.
func (r results) names() (names []string) {
	for _, p := range r.Peers {
		names = append(names, "  "+p.Name) // off the edge
	}
	slices.Reverse(names)
	return names
}

// points are those of one shape.
type points struct {
	at     plotter.XYs
	errors plotter.XErrors
	labels []string
}

// XError implements plotter.XErrorer.
func (p points) XError(i int) (low, high float64) { return p.errors.XError(i) }

// Len, XY and Label implement plotter.XYLabeller.
func (p points) Len() int                { return len(p.at) }
func (p points) XY(i int) (x, y float64) { return p.at.XY(i) }
func (p points) Label(i int) string      { return p.labels[i] }

// add draws them with the number of calls beside.
func (p points) add(on *plot.Plot, name string, n int) error {
	if len(p.at) == 0 {
		return nil
	}
	bars, err := plotter.NewXErrorBars(p)
	if err != nil {
		return err
	}
	marks, err := plotter.NewScatter(p.at)
	if err != nil {
		return err
	}
	labels, err := plotter.NewLabels(p)
	if err != nil {
		return err
	}
	labels.Offset = vg.Point{X: vg.Points(5), Y: vg.Points(-3)} // beside the point
	marks.GlyphStyle = draw.GlyphStyle{Color: colors[n%len(colors)], Radius: vg.Points(3.5), Shape: glyphs[n%len(glyphs)]}
	bars.LineStyle.Color, bars.CapWidth = colors[n%len(colors)], 0
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font.Size, labels.TextStyle[i].Font.Variant, labels.TextStyle[i].YAlign = vg.Points(8), "Sans", draw.YCenter
	}
	on.Add(bars, marks, labels)
	on.Legend.Add(name+" (calls)", marks)
	return nil
}

// The colours are of Okabe and Ito's palette, and each shape has a mark of its own.
var (
	colors = []color.Color{color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff}}
	glyphs = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}}
)

// decades are the ticks of a logarithmic scale: labels at the powers of ten alone.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) (ticks []plot.Tick) {
	for power := least; power <= high*1.001; power *= 10 {
		if power >= low*0.999 {
			ticks = append(ticks, plot.Tick{Value: power, Label: time.Duration(power * float64(time.Millisecond)).String()})
		}
		for n := 2.0; n < 10; n++ {
			if value := n * power; value >= low && value <= high {
				ticks = append(ticks, plot.Tick{Value: value})
			}
		}
	}
	return ticks
}

// decadesAround widens a range to powers of ten.
func decadesAround(low, high float64) (from, to float64) {
	for from = least; from*10 <= low; from *= 10 {
	}
	for to = from; to < high; to *= 10 {
	}
	return from, to
}
