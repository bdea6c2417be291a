// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
)

// Show returns the settings of the machine and of interfaces, with the advice of a profile.
func (s System) Show(profile Profile, interfaces []string) ([]Setting, error) {
	m, err := s.read(interfaces)
	if err != nil {
		return nil, err
	}
	return m.advise(profile), nil
}

// Apply writes the values that the profile advises, and returns the settings after that. Before
// the first one it creates the file with the former values, unless there is nothing to change. A
// setting that can't be written doesn't prevent the others; the error has all of them.
func (s System) Apply(profile Profile, interfaces []string, file string) ([]Setting, error) {
	m, err := s.read(interfaces)
	if err != nil {
		return nil, err
	}
	if len(m.changes(profile)) == 0 {
		return m.advise(profile), nil
	}
	if err := save(file, m.former(profile)); err != nil {
		return nil, fmt.Errorf("undo file: %w", err)
	}
	if m, err = s.write(interfaces, func(m *machine) []Setting { return m.changes(profile) }); m == nil {
		return nil, err
	}
	return m.advise(profile), err
}

// changes returns the settings that have another value than the profile advises.
func (m *machine) changes(profile Profile) []Setting {
	return slices.DeleteFunc(m.advise(profile), func(s Setting) bool { return s.Result != Change })
}

// former returns the settings that change. Another number of channels resets the settings of
// queues, so all of these are there.
func (m *machine) former(profile Profile) (settings []Setting) {
	changes := m.changes(profile)
	for _, s := range m.settings {
		if slices.ContainsFunc(changes, func(c Setting) bool {
			return c.String() == s.String() || c.Interface == s.Interface && c.kind == channels && s.kind >= interrupt
		}) {
			settings = append(settings, s)
		}
	}
	return settings
}

// save creates a file with settings. It must not exist: it may be of an earlier change.
func save(file string, settings []Setting) error {
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s exists", file)
	}
	text, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(file, append(text, '\n'), 0o600)
}

// Undo restores the settings of a file that Apply has created.
func (s System) Undo(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var former []Setting
	if err := json.Unmarshal(text, &former); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var interfaces []string
	for i := range former {
		interfaces = append(interfaces, former[i].Interface)
		former[i].Advice = former[i].Now
	}
	_, err = s.write(interfaces, func(*machine) []Setting { return former })
	return err
}

// write sets advised values that differ: numbers of channels first, as settings of queues follow
// from them, and then the others. Last, it checks that the kernel has them, and returns its
// settings, nil if these can't be read.
func (s System) write(interfaces []string, advised func(*machine) []Setting) (m *machine, failed error) {
	tried := map[string]error{}
	for _, step := range []string{"channels", "others", "check"} {
		var err error
		if m, err = s.read(interfaces); err != nil {
			return nil, errors.Join(failed, err)
		}
		for _, want := range advised(m) {
			name := want.String()
			if tried[name] != nil || step != "check" && (step == "channels") != (want.Name == "channels") {
				continue
			}
			i := slices.IndexFunc(m.settings, func(s Setting) bool { return s.String() == name })
			switch {
			case i < 0:
				tried[name] = errors.New("there is no such setting any more")
			case m.settings[i].is(want.Advice) || m.settings[i].write == nil:
				continue
			case step == "check":
				tried[name] = fmt.Errorf("still %q", m.settings[i].Now)
			default:
				tried[name] = m.settings[i].write(want.Advice)
			}
			if tried[name] != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %s: %w", name, want.Advice, tried[name]))
			}
		}
	}
	return m, failed
}
