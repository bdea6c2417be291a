// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// room is a folder that has a row in the floors table. Its subfolders belong to it,
// except for folders that have rooms of their own.
type room struct {
	folder string
	floor  int
}

var (
	heading = regexp.MustCompile(`(?m)^(#+) +(.*?) *$`)
	row     = regexp.MustCompile(`(?m)^\| *(\d+) *\|([^|]*)\|`)
	quoted  = regexp.MustCompile("`([^`]+)`")
)

// parseFloors reads the section "Floors" of ARCHITECTURE.md. There each line of a
// table whose first cell is a number is a floor: the second cell names its rooms, each
// a folder in backticks, with or without a slash at its end. Other cells, other lines,
// and the order of lines have no meaning.
func parseFloors(text string) ([]room, error) {
	var rooms []room
	for _, m := range row.FindAllStringSubmatch(section(text, "Floors"), -1) {
		floor, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, err
		}
		for _, name := range quoted.FindAllStringSubmatch(m[2], -1) {
			r := room{strings.TrimSuffix(name[1], "/"), floor}
			if slices.ContainsFunc(rooms, func(o room) bool { return o.folder == r.folder }) {
				return nil, fmt.Errorf("floors: %s has two rows", r.folder)
			}
			rooms = append(rooms, r)
		}
	}
	if len(rooms) == 0 {
		return nil, fmt.Errorf(`floors: ARCHITECTURE.md has no section "Floors" with a table`)
	}
	// The longest folder that contains a path is its room.
	slices.SortFunc(rooms, func(a, b room) int { return cmp.Compare(len(b.folder), len(a.folder)) })
	return rooms, nil
}

// section returns the text below the heading called title, up to the next heading
// of the same or a higher level.
func section(text, title string) string {
	all := heading.FindAllStringSubmatchIndex(text, -1)
	for i, m := range all {
		if text[m[4]:m[5]] != title {
			continue
		}
		for _, next := range all[i+1:] {
			if next[3]-next[2] <= m[3]-m[2] {
				return text[m[1]:next[0]]
			}
		}
		return text[m[1]:]
	}
	return ""
}

// roomOf returns the room that a folder or a file belongs to.
func roomOf(rooms []room, path string) (room, bool) {
	i := slices.IndexFunc(rooms, func(r room) bool { return path == r.folder || strings.HasPrefix(path, r.folder+"/") })
	if i < 0 {
		return room{}, false
	}
	return rooms[i], true
}

// checkFloors returns each import that does not lead from a floor to a lower one, or
// stay in its room, each folder without a room and each room without a file.
func checkFloors(t tree) []string {
	rooms, err := parseFloors(t.architecture)
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	occupied := map[string]bool{}
	for _, f := range t.files {
		from, ok := roomOf(rooms, f.folder())
		if !ok {
			found = append(found, fmt.Sprintf("floors: %s has no row", f.folder()))
			continue
		}
		occupied[from.folder] = true
		for _, imported := range f.imports {
			to, ok := roomOf(rooms, imported)
			if ok && to != from && to.floor >= from.floor {
				found = append(found, fmt.Sprintf("floors: %s imports %s", f.folder(), folderOf(imported)))
			}
		}
	}
	for _, r := range rooms {
		if !occupied[r.folder] {
			found = append(found, fmt.Sprintf("floors: %s has a row but no code", r.folder))
		}
	}
	return found
}

// folderOf returns the folder of an import: a package's own, or a header's.
func folderOf(imported string) string {
	if strings.HasSuffix(imported, ".h") {
		return imported[:strings.LastIndexByte(imported, '/')]
	}
	return imported
}

func TestParseFloors(t *testing.T) {
	const text = "# Page\n\n| 9 | `not/this` |\n\n## Floors\n\nWords.\n\n" +
		"| floor | rooms | what |\n| ---: | --- | --- |\n| 0 | `internal/lb`, `api/` | `words` |\n\n" +
		"### BPF\n\n|1|`bpf`|\n\n## Next\n\n| 2 | `nor/this` |\n"
	got, err := parseFloors(text)
	want := []room{{"internal/lb", 0}, {"api", 0}, {"bpf", 1}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("parseFloors = %v, %v; want %v", got, err, want)
	}
	if _, err := parseFloors("# Page\n\n## Floors\n\nNo table.\n"); err == nil {
		t.Error("parseFloors accepted a section without a table")
	}
	if _, err := parseFloors("## Floors\n\n| 0 | `a` |\n| 1 | `a/` |\n"); err == nil {
		t.Error("parseFloors accepted two rows for one folder")
	}
}
