// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"fairlead.io/fairlead/lab/bench"
)

const (
	root      = "../../.."
	committed = root + "/docs/reports"
)

func files(t *testing.T) (*catalogue, *plots) {
	t.Helper()
	papers, err := decode[catalogue](papersYAML)
	if err != nil {
		t.Fatal(err)
	}
	charts, err := decode[plots](plotsYAML)
	if err != nil {
		t.Fatal(err)
	}
	return papers, charts
}

func committedReports(t *testing.T) reports {
	t.Helper()
	all, err := read(committed)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// numbered returns the items "KIND CHAPTER.1" to "KIND CHAPTER.LAST", without chapters
// "KIND 1" to "KIND LAST".
func numbered(kind, chapter string, last int) []string {
	var all []string
	for i := 1; i <= last; i++ {
		all = append(all, fmt.Sprintf("%s %s%d", kind, chapter, i))
	}
	return all
}

// Each figure and table of the papers is listed once. The numbers are from the papers'
// lists of figures and tables, and the captions where there is none.
func TestAllItems(t *testing.T) {
	want := map[string][]string{
		"kakao": slices.Concat(numbered("Figure", "", 10), numbered("Table", "", 2)),
		"dissertation": slices.Concat(
			numbered("Figure", "1.", 5), numbered("Figure", "2.", 2), numbered("Figure", "3.", 5), numbered("Figure", "4.", 5),
			numbered("Figure", "5.", 10), numbered("Figure", "6.", 4), numbered("Figure", "7.", 4),
			numbered("Table", "1.", 1), numbered("Table", "2.", 1), numbered("Table", "5.", 2), numbered("Table", "6.", 2),
			numbered("Table", "7.", 2), numbered("Table", "C.", 3)),
		"short": numbered("Figure", "", 6),
	}
	unnumbered := map[string]map[string]int{
		"chapter7": {"Figure": 6, "Table": 1},
		"networks": {"Graph": 12, "Table": 4},
	}
	papers, _ := files(t)
	if len(papers.Papers) != len(want)+len(unnumbered) {
		t.Errorf("%d papers, want %d", len(papers.Papers), len(want)+len(unnumbered))
	}
	section := regexp.MustCompile(`^(Section|Chapter) `)
	for _, p := range papers.Papers {
		var names []string
		kinds := map[string]int{}
		for _, it := range p.Items {
			if section.MatchString(it.Item) {
				continue
			}
			if slices.Contains(names, it.Item) {
				t.Errorf("%s: %s is listed twice", p.Key, it.Item)
			}
			names = append(names, it.Item)
			kind, _, _ := strings.Cut(it.Item, ":")
			kinds[kind]++
		}
		if counts, ok := unnumbered[p.Key]; ok {
			for kind, n := range counts {
				if kinds[kind] != n {
					t.Errorf("%s: %d of the kind %s, want %d", p.Key, kinds[kind], kind, n)
				}
			}
			continue
		}
		all := want[p.Key]
		slices.Sort(names)
		slices.Sort(all)
		if !slices.Equal(names, all) {
			t.Errorf("%s has %q, want %q", p.Key, names, all)
		}
	}
}

// Each claim says how it is judged, or why it isn't.
func TestClaims(t *testing.T) {
	papers, _ := files(t)
	tests := testNames(t)
	for _, p := range papers.Papers {
		for i := range p.Items {
			it := &p.Items[i]
			name := p.Key + "/" + it.Item
			filled := 0
			for _, has := range []bool{it.Here != "", it.SameAs != "", len(it.Claims) > 0} {
				if has {
					filled++
				}
			}
			if it.Shows == "" || filled != 1 {
				t.Errorf("%s: want what it shows, and one of here, sameAs and claims", name)
			}
			if same := papers.find(it.SameAs); it.SameAs != "" && (same == nil || same.SameAs != "") {
				t.Errorf("%s: sameAs %q: want an item with claims of its own", name, it.SameAs)
			}
			for _, s := range it.Series {
				if len(s.At) != len(s.Values) || s.Unit == "" {
					t.Errorf("%s: series %s has %d places, %d values, unit %q", name, s.Name, len(s.At), len(s.Values), s.Unit)
				}
			}
			for _, test := range regexp.MustCompile(`Test[A-Z]\w*`).FindAllString(it.Here, -1) {
				if !tests[test] {
					t.Errorf("%s: there is no %s", name, test)
				}
			}
			for j := range it.Claims {
				if err := checkClaim(&it.Claims[j]); err != nil {
					t.Errorf("%s: %q: %v", name, it.Claims[j].Claim, err)
				}
			}
		}
	}
}

func checkClaim(c *claim) error {
	switch measured := c.Measure != nil; {
	case c.Claim == "" || c.Paper == "":
		return fmt.Errorf("want the claim and the words of the paper")
	case measured == (c.NotYet != "" || c.NotHere != ""), c.NotYet != "" && c.NotHere != "":
		return fmt.Errorf("want one of measure, notYet and notHere")
	case measured != (c.AtLeast != nil || c.AtMost != nil):
		return fmt.Errorf("want bounds if it is measured, and only then")
	case measured && (!slices.Contains([]string{"", "max", "p99"}, c.Measure.Of) || !slices.Contains([]string{"", "max", "sum"}, c.Measure.Pick)):
		return fmt.Errorf("unknown of %q or pick %q", c.Measure.Of, c.Measure.Pick)
	case measured == (c.Needs != ""):
		return fmt.Errorf("want the means by which it could be measured, unless it is")
	}
	return nil
}

// testNames are the names of all tests of the tree.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllSubmatch(text, -1) {
			names[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// The committed reports have each field that a claim or a plot reads, and each has a command.
func TestFields(t *testing.T) {
	papers, charts := files(t)
	all := committedReports(t)
	for _, p := range papers.Papers {
		for _, it := range p.Items {
			for i := range it.Claims {
				if m := it.Claims[i].Measure; m != nil {
					if _, err := m.read(all); err != nil {
						t.Errorf("%s/%s: %v", p.Key, it.Item, err)
					}
				}
			}
		}
	}
	for name := range all {
		if papers.Reports[name] == "" {
			t.Errorf("report %s has no command", name)
		}
	}
	for name := range papers.Reports {
		if all[name] == nil {
			t.Errorf("there is no report %s", name)
		}
	}
	lines := map[string]int{}
	for _, ch := range charts.Plots {
		for i := range ch.Lines {
			l := &ch.Lines[i]
			lines[ch.Title]++
			for place, m := range l.Points {
				if !slices.Contains(slices.Concat(ch.X.Names, ch.Rows), place) {
					t.Errorf("%s: %s: there is no place %q", ch.Title, l.Name, place)
				}
				if _, err := m.read(all); err != nil {
					t.Errorf("%s: %s: %v", ch.Title, l.Name, err)
				}
			}
		}
	}
	drawn := charts.drawn(all, papers)
	if len(drawn) != len(charts.Plots) {
		t.Errorf("%d plots are drawn of %d", len(drawn), len(charts.Plots))
	}
	for _, ch := range drawn {
		if len(ch.Lines) != lines[ch.Title] {
			t.Errorf("%s: %d lines have points, want %d", ch.Title, len(ch.Lines), lines[ch.Title])
		}
		for _, l := range ch.Lines {
			if l.Measure != nil && !l.Distribution && !l.Timeline && len(l.drawn) != len(ch.X.Names) {
				t.Errorf("%s: %s has %d points, want %d", ch.Title, l.Name, len(l.drawn), len(ch.X.Names))
			}
		}
	}
}

// fakes are reports with known values.
func fakes() reports {
	r := &report{Report: bench.Report{
		Bench:  "fake",
		Ratios: map[string]float64{"gain": 5.5},
		Results: []bench.Result{
			{Name: "rate", Unit: "packets/s", Median: 8, Min: 6, Max: 9, Labels: map[string]string{"device": "a", "frame": "64"}},
			{Name: "rate", Unit: "packets/s", Median: 10, Min: 9, Max: 12, Labels: map[string]string{"device": "b", "frame": "64"}},
			{Name: "wrong", Unit: "tables", Median: 0, Labels: map[string]string{"router": "x"}},
			{Name: "wrong", Unit: "tables", Median: 1, Min: 1, Max: 2, Labels: map[string]string{"router": "y"}},
			{Name: "delay", Unit: "ms", Median: 5, Min: 1, Max: 90, Distribution: &bench.Distribution{P99: 70}},
			{Name: "broken", Unit: "connections", Median: 7, Timeline: bench.Timeline{0, 7, 0}},
		},
		Verdicts: []bench.Verdict{{Claim: "lost", Value: 3}},
	}}
	return reports{"fake": r}
}

func TestVerdicts(t *testing.T) {
	bound := func(v float64) *float64 { return &v }
	a := map[string]string{"device": "a"}
	for name, c := range map[string]struct {
		claim
		state state
		value string
		why   string
	}{
		"ratio":         {claim{Measure: &measure{Report: "fake", Ratio: "gain"}, AtLeast: bound(5.5)}, holds, "5.5×", ""},
		"too small":     {claim{Measure: &measure{Report: "fake", Ratio: "gain"}, AtLeast: bound(5.6)}, fails, "5.5×", ""},
		"too great":     {claim{Measure: &measure{Report: "fake", Ratio: "gain"}, AtLeast: bound(1), AtMost: bound(5)}, fails, "5.5×", ""},
		"between":       {claim{Measure: &measure{Report: "fake", Ratio: "gain"}, AtLeast: bound(5), AtMost: bound(6)}, holds, "5.5×", ""},
		"quotient":      {claim{Measure: &measure{Report: "fake", Result: "rate", Where: a, Over: map[string]string{"device": "b"}}, AtLeast: bound(0.9)}, fails, "0.8×", ""},
		"sum":           {claim{Measure: &measure{Report: "fake", Result: "wrong", Of: "max", Pick: "sum"}, AtMost: bound(1)}, fails, "2 tables", ""},
		"one of many":   {claim{Measure: &measure{Report: "fake", Result: "wrong"}, AtMost: bound(0)}, notYet, "", "has 2 results wrong"},
		"percentile":    {claim{Measure: &measure{Report: "fake", Result: "delay", Of: "p99"}, AtMost: bound(70)}, holds, "70 ms", ""},
		"no percentile": {claim{Measure: &measure{Report: "fake", Result: "rate", Where: a, Of: "p99"}, AtMost: bound(70)}, notYet, "", "no p99"},
		"verdict":       {claim{Measure: &measure{Report: "fake", Verdict: "lost", Unit: "packets"}, AtMost: bound(0)}, fails, "3 packets", ""},
		"by zero":       {claim{Measure: &measure{Report: "fake", Result: "delay", OverResult: "wrong", Over: map[string]string{"router": "x"}}, AtMost: bound(1)}, notYet, "", "wrong is 0"},
		"no report":     {claim{Measure: &measure{Report: "other", Ratio: "gain"}, AtMost: bound(1)}, notYet, "", "no report other"},
		"no ratio":      {claim{Measure: &measure{Report: "fake", Ratio: "loss"}, AtMost: bound(1)}, notYet, "", "no ratio loss"},
		"no result":     {claim{Measure: &measure{Report: "fake", Result: "loss"}, AtMost: bound(1)}, notYet, "", "has 0 results loss"},
		"no verdict":    {claim{Measure: &measure{Report: "fake", Verdict: "won"}, AtMost: bound(1)}, notYet, "", "no verdict"},
		"not here":      {claim{NotHere: "no clouds"}, notHere, "", "no clouds"},
		"not yet":       {claim{NotYet: "no bench"}, notYet, "", "no bench"},
	} {
		o := c.judge(fakes())
		value := ""
		if o.Value != nil {
			value = o.Value.String()
		}
		if o.State != c.state || value != c.value || !strings.Contains(o.Why, c.why) {
			t.Errorf("%s: %s, value %q, reason %q, want %s, %q, %q", name, o.State, value, o.Why, c.state, c.value, c.why)
		}
	}
}

// A quotient has the extremes of both sides.
func TestRange(t *testing.T) {
	m := &measure{Report: "fake", Result: "rate", Where: map[string]string{"device": "a"}, Over: map[string]string{"device": "b"}}
	v, err := m.read(fakes())
	if err != nil || v.low != 0.5 || v.high != 1 || v.Range() != "0.5 – 1" {
		t.Errorf("%+v, error %v, want 0.5 to 1", v, err)
	}
}

// A timeline has a point for each second.
func TestTimeline(t *testing.T) {
	l := line{Timeline: true, Measure: &measure{Report: "fake", Result: "broken"}}
	l.compute(&chart{}, fakes(), nil)
	if want := []point{{0, 0, 0, 0}, {1, 7, 7, 7}, {2, 0, 0, 0}}; !slices.Equal(l.drawn, want) {
		t.Errorf("points %v, want %v", l.drawn, want)
	}
}

func TestDigits(t *testing.T) {
	for want, v := range map[string]float64{"0": 0, "0.711": 0.71066, "74.8": 74.76, "999": 999, "1,000": 999.7, "7,408": 7408.1, "777,640": 777640, "18.66 M": 18661234, "-30.9": -30.9} {
		if got := digits(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

func TestTicks(t *testing.T) {
	for name, c := range map[string]struct {
		axis    axis
		numbers []float64
		want    []float64
	}{
		"from 0":      {axis{}, []float64{3, 9.7}, []float64{0, 2, 4, 6, 8, 10}},
		"nothing":     {axis{}, []float64{0, 0}, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		"decades":     {axis{Log: true}, []float64{5, 9000}, []float64{10, 100, 1000, 10000}},
		"few decades": {axis{Log: true}, []float64{0.9, 16}, []float64{0.5, 1, 2, 5, 10, 20}},
	} {
		c.axis.fit(c.numbers)
		got := c.axis.ticks()
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The page of the committed reports has each item, and no reference beyond itself.
func TestPage(t *testing.T) {
	var text bytes.Buffer
	if err := Write(&text, committed); err != nil {
		t.Fatal(err)
	}
	page := text.String()
	document, err := html.Parse(&text)
	if err != nil {
		t.Fatal(err)
	}
	ids, references := map[string]int{}, []string{}
	for node := range document.Descendants() {
		if node.Data == "script" || node.Data == "iframe" || node.Data == "img" {
			t.Errorf("the page has an element %s", node.Data)
		}
		for _, a := range node.Attr {
			switch a.Key {
			case "id":
				ids[a.Val]++
			case "href", "src", "srcset", "action":
				references = append(references, a.Val)
			}
		}
	}
	for name, n := range ids {
		if n != 1 {
			t.Errorf("id %q is there %d times", name, n)
		}
	}
	for _, r := range references {
		target, within := strings.CutPrefix(r, "#")
		if r != "data:," && (!within || ids[target] == 0) {
			t.Errorf("reference to %q", r)
		}
	}
	for _, word := range []string{"@import", "http://", "https://", "url("} {
		if strings.Contains(page, word) {
			t.Errorf("the page contains %q", word)
		}
	}
	papers, _ := files(t)
	for _, p := range papers.Papers {
		for i := range p.Items {
			if name := p.Items[i].judge(p.Key+"/"+p.Items[i].Item, nil).ID; ids[name] != 1 {
				t.Errorf("%s is there %d times", name, ids[name])
			}
		}
	}
	if strings.Contains(page, "ZgotmplZ") || strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
		t.Error("the page has numbers or texts that the template refuses")
	}
}

// Texts of reports are escaped.
func TestEscapes(t *testing.T) {
	dir := t.TempDir()
	const text = `{"bench":"<b>x</b>","verdicts":[{"claim":"</pre><script>alert(1)</script>"}]}`
	if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := Write(&page, dir); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"<script", "<b>x"} {
		if strings.Contains(page.String(), word) {
			t.Errorf("the page contains %q", word)
		}
	}
}

func TestBadFolders(t *testing.T) {
	for want, content := range map[string][]string{
		"no reports":     nil,
		"unexpected end": {"{"},
		`of bench ""`:    {"{}"},
		`of bench "x"`:   {`{"bench":"x"}`, `{"bench":"x"}`},
	} {
		dir := t.TempDir()
		for i, text := range content {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.json", i)), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := Write(&bytes.Buffer{}, dir)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
