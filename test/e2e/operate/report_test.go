// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"fairlead.io/fairlead/lab/bench/page"
	"fairlead.io/fairlead/test/browser"
)

// The page of the committed reports in a real browser: light and dark, narrow, wide and on paper.
func TestReportPage(t *testing.T) {
	t.Parallel()
	browser.Need(t)
	var text bytes.Buffer
	if err := page.Write(&text, "../../../docs/reports"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	b := browser.Start(t)
	b.Do(chromedp.Navigate("file://" + path)) // and waits until it is loaded
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{400, 1400} {
			b.Picture(scheme, width, 900)
			b.Until(fmt.Sprintf("%s at %d pixels has no horizontal scroll bar", scheme, width),
				fmt.Sprintf("innerWidth === %d && document.documentElement.scrollWidth <= innerWidth", width))
			b.Until("no cell is wider than its table", "[...document.querySelectorAll('.claims td, figure, .report')].every((e) => e.scrollWidth <= e.clientWidth + 1)")
		}
	}
	b.Until("each plot is drawn", "[...document.querySelectorAll('figure svg[role]')].every((s) => s.getBoundingClientRect().height > 80 && s.querySelector('.bar, .dot, .line'))")
	b.Do(chromedp.Click("label:has(#only-fails)"))
	b.Until("only claims that don't hold are shown",
		"[...document.querySelectorAll('.claims tbody')].every((e) => (e.offsetHeight > 0) === e.classList.contains('has-fails')) && document.querySelector('.has-fails')")
	b.Do(chromedp.Click("label:has(#only-all)"))
	b.Until("all claims are shown again", "[...document.querySelectorAll('.claims tbody')].every((e) => e.offsetHeight > 0)")
	if pdf := b.PDF(); !bytes.HasPrefix(pdf, []byte("%PDF-")) || bytes.Count(pdf, []byte("/Type /Page\n")) < 5 {
		t.Errorf("printing gives %d bytes with %d pages, want at least five pages", len(pdf), bytes.Count(pdf, []byte("/Type /Page\n")))
	}
	b.CheckQuiet("file://" + path)
}
