// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"
)

// chart is a plot: lines over two axes, or with rows a place for each name, top down.
type chart struct {
	Title string `yaml:"title"`
	Note  string `yaml:"note"`
	// Picture is the name of a file that shows the chart alone.
	Picture string   `yaml:"picture"`
	X       axis     `yaml:"x"`
	Y       axis     `yaml:"y"`
	Rows    []string `yaml:"rows"`
	// Bars are drawn from 0 in place of dots, in rows.
	Bars  bool   `yaml:"bars"`
	Marks []mark `yaml:"marks"`
	Lines []line `yaml:"lines"`
}

// axis is the scale of one direction.
type axis struct {
	Label string `yaml:"label"`
	// Names are the places 0, 1, … of an axis without numbers.
	Names []string `yaml:"names"`
	Log   bool     `yaml:"log"`
	Low   float64  `yaml:"low"`
	High  float64  `yaml:"high"`
}

// line is a series of points. Points of a paper are hollow.
type line struct {
	Name string `yaml:"name"`
	// Hue selects the colour and the shape of the marks.
	Hue int `yaml:"hue"`
	// Measure gives a point for each label By of the x axis, a Distribution, or a Timeline.
	Measure      *measure `yaml:"measure"`
	By           string   `yaml:"by"`
	Unit         float64  `yaml:"unit"`
	Distribution bool     `yaml:"distribution"`
	Timeline     bool     `yaml:"timeline"`
	// Points are by names of the x axis or of rows.
	Points map[string]*measure `yaml:"points"`
	// Paper refers to an item with the Series, divided by Over.
	Paper  string `yaml:"paper"`
	Series string `yaml:"series"`
	Over   string `yaml:"over"`

	drawn []point
}

// point has a place, on the x axis or among rows, and a number with its bounds.
type point struct{ place, number, low, high float64 }

// mark is a paper's statement at a place of the numbers' axis.
type mark struct {
	At   float64 `yaml:"at"`
	Text string  `yaml:"text"`
}

// across says whether marks belong to the x axis.
func (ch *chart) across() bool { return ch.Rows != nil || ch.X.Names == nil }

// The size of a chart, and the room around its area, in pixels.
const (
	chartWidth, chartHeight  = 400.0, 265.0
	left, right, top, bottom = 46.0, 20.0, 20.0, 44.0
	rowsLeft, rowHeight      = 128.0, 30.0
)

// canvas is an SVG document in the making.
type canvas struct {
	strings.Builder
	// area that the axes span.
	x0, x1, y0, y1 float64
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

func (c *canvas) text(x, y float64, class, text string) {
	c.add(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(text))
}

func (c *canvas) rule(x1, y1, x2, y2 float64, class string) {
	c.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

// SVG draws the chart.
func (ch *chart) SVG() template.HTML {
	c := &canvas{x0: left, x1: chartWidth - right, y0: top, y1: chartHeight - bottom}
	if ch.Rows != nil {
		c.x0, c.y1 = rowsLeft, top+rowHeight*float64(len(ch.Rows))
	}
	c.add(`<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, chartWidth, c.y1+bottom, html.EscapeString(ch.Title))
	x, y := ch.X.scale(c.x0, c.x1), ch.Y.scale(c.y1, c.y0)
	if ch.Rows != nil {
		y = (&axis{Names: ch.Rows}).scale(c.y0, c.y1)
	}
	ch.drawAxes(c, x, y)
	for i := range ch.Lines {
		l := &ch.Lines[i]
		c.add(`<g class="%s">`, l.Class())
		if ch.Rows != nil {
			l.drawRows(c, x, y, (float64(i)-float64(len(ch.Lines)-1)/2)*10, ch.Bars)
		} else {
			l.draw(c, x, y)
		}
		c.add("</g>")
	}
	for _, m := range ch.Marks {
		if ch.across() {
			c.rule(x(m.At), c.y0, x(m.At), c.y1, "mark")
			c.text(c.x1, c.y0-6, "said end", m.Text)
		} else {
			c.rule(c.x0, y(m.At), c.x1, y(m.At), "mark")
			c.text(c.x0+6, y(m.At)+12, "said", m.Text)
		}
	}
	c.add("</svg>")
	return template.HTML(c.String()) //nolint:gosec // all texts in it are escaped
}

// drawAxes draws the axes with their ticks and labels.
func (ch *chart) drawAxes(c *canvas, x, y func(float64) float64) {
	for i, name := range ch.X.Names {
		c.text(x(float64(i)), c.y1+16, "tick mid", group(name))
	}
	for _, v := range ch.X.ticks() {
		c.rule(x(v), c.y0, x(v), c.y1, "grid")
		c.text(x(v), c.y1+16, "tick mid", digits(v))
	}
	if ch.Rows == nil {
		for _, v := range ch.Y.ticks() {
			c.rule(c.x0, y(v), c.x1, y(v), "grid")
			c.text(c.x0-7, y(v)+4, "tick end", digits(v))
		}
	}
	for i, name := range ch.Rows {
		c.text(c.x0-10, y(float64(i))+4, "tick end", name)
	}
	c.rule(c.x0, c.y1, c.x1, c.y1, "axis")
	c.text((c.x0+c.x1)/2, c.y1+36, "label mid", ch.X.Label)
	c.text(4, 10, "label", ch.Y.Label)
}

// draw draws a line with marks and error bars.
func (l *line) draw(c *canvas, x, y func(float64) float64) {
	var path strings.Builder
	for i, p := range l.drawn {
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x(p.place), y(p.number))
	}
	c.add(`<path d="%s" class="line"/>`, path.String())
	if l.Distribution {
		return
	}
	for _, p := range l.drawn {
		c.rule(x(p.place), y(p.low), x(p.place), y(p.high), "error")
		c.add("%s", l.dot(p, x(p.place), y(p.number)))
	}
}

// drawRows draws bars, or marks with error bars, in rows.
func (l *line) drawRows(c *canvas, x, y func(float64) float64, shift float64, bars bool) {
	for _, p := range l.drawn {
		at := y(p.place) + shift
		if bars {
			c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="8" rx="1.5" class="bar"/>`, c.x0, at-4, max(x(p.number)-c.x0, 1))
			c.text(x(p.number)+5, at+4, "tick", digits(p.number))
			continue
		}
		c.rule(x(p.low), at, x(p.high), at, "error")
		c.add("%s", l.dot(p, x(p.number), at))
	}
}

// Class is the line's name in the style sheet.
func (l *line) Class() string {
	class := fmt.Sprintf("series s%d", l.Hue)
	if l.Paper != "" {
		class += " paper"
	}
	return class
}

// Key draws the line's mark for the legend.
func (l *line) Key() template.HTML {
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 26 12" class="key %s" aria-hidden="true"><path d="M1 6H25" class="line"/>`+ //nolint:gosec // numbers only
		`<path d="%s" transform="translate(13 6)" class="dot"/></svg>`, l.Class(), shapes[l.Hue%len(shapes)]))
}

// shapes are outlines of marks around 0, which differ also without colour.
var shapes = [...]string{
	"M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "M-3.5 -3.5h7v7h-7z", "M0 -4.8l4.5 8h-9z", "M0 -4.8l4.8 4.8l-4.8 4.8l-4.8 -4.8z",
}

// dot is the mark of a point, with its numbers as a tip.
func (l *line) dot(p point, x, y float64) string {
	return fmt.Sprintf(`<path d="%s" transform="translate(%.1f %.1f)" class="dot"><title>%s: %s (%s to %s)</title></path>`,
		shapes[l.Hue%len(shapes)], x, y, html.EscapeString(l.Name), digits(p.number), digits(p.low), digits(p.high))
}

// scale returns the function from numbers to pixels.
func (a *axis) scale(from, to float64) func(float64) float64 {
	if n := float64(len(a.Names)); n > 0 {
		return func(v float64) float64 { return from + (to-from)*(v+0.5)/n }
	}
	of := func(v float64) float64 { return v }
	if a.Log {
		of = func(v float64) float64 { return math.Log10(max(v, a.Low)) } // bars may end at the edge
	}
	low, high := of(a.Low), of(a.High)
	return func(v float64) float64 { return from + (to-from)*(min(of(v), high)-low)/(high-low) }
}

// ticks are round numbers between the bounds.
func (a *axis) ticks() []float64 {
	var all []float64
	if a.Names != nil {
		return nil
	}
	if a.Log {
		steps := []float64{1, 2, 5}
		if a.High/a.Low > 150 {
			steps = steps[:1]
		}
		for decade := math.Pow(10, math.Floor(math.Log10(a.Low))); decade <= a.High; decade *= 10 {
			for _, step := range steps {
				if v := decade * step; v >= a.Low*0.999 && v <= a.High*1.001 {
					all = append(all, v)
				}
			}
		}
		return all
	}
	step := roundUp((a.High - a.Low) / 6)
	for v := a.Low; v <= a.High+step/1000; v += step {
		all = append(all, v)
	}
	return all
}

// roundUp returns the next of 1, 2 and 5 times a power of ten.
func roundUp(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 5} {
		if decade*step >= v*0.999 {
			return decade * step
		}
	}
	return decade * 10
}

// fit sets the bounds of an axis to round numbers around the numbers and their bounds.
func (a *axis) fit(numbers []float64) {
	if a.Names != nil || a.High != 0 {
		return
	}
	low, high := slices.Min(numbers), slices.Max(numbers)
	switch {
	case a.Log:
		a.Low, a.High = 1/roundUp(1/low), roundUp(high)
	case high <= 0:
		a.High = 1
	default:
		step := roundUp(high / 6)
		a.High = step * math.Ceil(high/step)
	}
}

// Gauge draws a number, with its smallest and largest round, and the bounds of a claim on a
// logarithmic scale; nothing if one of them is 0.
func (o *outcome) Gauge() template.HTML {
	bound := cmp.Or(o.AtLeast, o.AtMost)
	if o.Value == nil || bound == nil || *bound <= 0 || o.Value.number <= 0 {
		return ""
	}
	const width, middle, decades = 120.0, 8.0, 1.3
	at := func(v float64) float64 {
		d := math.Log10(max(v, 1e-12) / *bound)
		return width/2 + (width/2-6)*max(-1, min(1, d/decades))
	}
	from, to := 2.0, width-2
	if o.AtLeast != nil {
		from = at(*o.AtLeast)
	}
	if o.AtMost != nil {
		to = at(*o.AtMost)
	}
	c := &canvas{}
	c.add(`<svg viewBox="0 0 %.0f 16" class="gauge" aria-hidden="true">`, width)
	c.add(`<rect x="%.1f" y="3" width="%.1f" height="10" class="allowed"/>`, from, to-from)
	c.rule(2, middle, width-2, middle, "grid")
	c.rule(at(*bound), 1, at(*bound), 15, "bound")
	c.rule(at(o.Value.low), middle, at(o.Value.high), middle, "error")
	c.add(`<circle cx="%.1f" cy="%.1f" r="4" class="dot"/></svg>`, at(o.Value.number), middle)
	return template.HTML(c.String()) //nolint:gosec // numbers only
}
