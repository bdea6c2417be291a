// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html"
	"strings"
)

// Pictures draws the charts that have a file name, over the reports in a folder, as SVG documents by that name.
func Pictures(dir string) (map[string]string, error) {
	_, charts, _, err := load(dir)
	if err != nil {
		return nil, err
	}
	pictures := map[string]string{}
	for _, ch := range charts {
		if ch.Picture != "" {
			pictures[ch.Picture] = ch.document()
		}
	}
	return pictures, nil
}

// document is the chart with its title, and a legend of two columns.
func (ch *chart) document() string {
	const head, lineHeight, margin = 26.0, 17.0, 10.0
	plot := head + lineHeight*float64((len(ch.Lines)+1)/2)
	height := plot + chartHeight
	if ch.Rows != nil {
		height = plot + top + rowHeight*float64(len(ch.Rows)) + bottom
	}
	c := &canvas{}
	c.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="system-ui, sans-serif">`, chartWidth, height)
	c.add("<title>%s</title>\n<style>\n%s</style>", html.EscapeString(ch.Title), chartCSS)
	c.add(`<rect width="100%%" height="100%%" rx="10" class="card"/>`)
	c.text(margin, 18, "title", ch.Title)
	for i := range ch.Lines {
		x, y := margin+float64(i%2)*chartWidth/2, head+lineHeight*float64(i/2)
		c.add("%s", placed(string(ch.Lines[i].Key()), x, y, 26, 12))
		c.text(x+32, y+10, "", ch.Lines[i].Name)
	}
	c.add("%s</svg>", placed(string(ch.SVG()), 0, plot, chartWidth, height-plot))
	return c.String()
}

// placed gives an SVG element a place and a size in another one.
func placed(svg string, x, y, width, height float64) string {
	return strings.Replace(svg, "<svg ", fmt.Sprintf(`<svg x="%.0f" y="%.0f" width="%.0f" height="%.0f" `, x, y, width, height), 1)
}
