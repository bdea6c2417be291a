// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/api/v1alpha1"
)

// declaredField is a field of a declaration of api/v1alpha1.
type declaredField struct {
	name string
	// required is set if its tag has neither omitempty nor omitzero.
	required bool
	index    []int
	// low and high are the bounds of a number, from the tag "range".
	low, high uint64
}

// fieldsOf returns the fields of a struct and of embedded ones, by their names in JSON.
func (d *decoder) fieldsOf(t reflect.Type) (all []declaredField) {
	if known := d.declared[t]; known != nil {
		return known
	}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue // embedded
		}
		one := declaredField{name: name, required: !strings.HasPrefix(options, "omit"), index: f.Index}
		low, high, bounded := strings.Cut(f.Tag.Get("range"), "-")
		one.low, _ = strconv.ParseUint(low, 10, 64)
		if one.high, _ = strconv.ParseUint(high, 10, 64); !bounded {
			one.high = math.MaxInt32
		}
		all = append(all, one)
	}
	if d.declared == nil {
		d.declared = make(map[reflect.Type][]declaredField)
	}
	d.declared[t] = all
	return all
}

// decode reads a declaration strictly: each field by its name in JSON, and no others.
func decode[T any](v value, to *T) { v.readFields(declaredFields(v, to)...) }

// declaredFields returns the fields of a declaration.
func declaredFields[T any](v value, to *T) []field { return v.fields(reflect.ValueOf(to).Elem()) }

func (d *decoder) fields(to reflect.Value) []field {
	declared := d.fieldsOf(to.Type())
	fields, target := make([]field, len(declared)), &to // shared by all
	for i := range declared {
		d := &declared[i]
		fields[i] = field{name: d.name, required: d.required, read: func(v value) { v.decode(target.FieldByIndex(d.index), d) }}
	}
	return fields
}

// decode reads a value into one of the types of declarations.
func (v value) decode(to reflect.Value, d *declaredField) {
	switch kind := to.Kind(); {
	case kind == reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		v.decode(to.Elem(), d)
	case to.Type() == reflect.TypeFor[metav1.Duration]():
		duration(v, &to.Addr().Interface().(*metav1.Duration).Duration)
	case to.Type() == reflect.TypeFor[v1alpha1.BFD]():
		v.decodeBFD(to.Addr().Interface().(*v1alpha1.BFD))
	case kind == reflect.Struct:
		v.readFields(v.fields(to)...)
	case kind == reflect.Slice:
		v.decodeList(to, d)
	case kind == reflect.Map:
		v.decodeTexts(to)
	case kind == reflect.Bool:
		var b bool
		flag(v, &b)
		to.SetBool(b)
	case kind == reflect.String:
		if s, ok := v.text(wanted(to.Type())); ok {
			to.SetString(s)
		}
	default:
		var n uint64
		number(d.low, d.high)(v, &n)
		to.SetInt(int64(n))
	}
}

// wanted describes the valid texts of a type.
func wanted(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[v1alpha1.IPAddress]():
		return "an IPv4 or IPv6 address"
	case reflect.TypeFor[v1alpha1.Community]():
		return `a community in quotes, such as "65021:100" or "65021:1:2"`
	default:
		return "text"
	}
}

func (v value) decodeList(to reflect.Value, d *declaredField) {
	sequence, ok := v.node.(*ast.SequenceNode)
	if !ok {
		v.unexpected("a list")
		return
	}
	to.Set(reflect.MakeSlice(to.Type(), len(sequence.Values), len(sequence.Values)))
	for i, node := range sequence.Values {
		value{decoder: v.decoder, path: fmt.Sprintf("%s[%d]", v.path, i), node: node}.decode(to.Index(i), d)
	}
}

// decodeTexts reads a mapping with arbitrary keys and text values.
func (v value) decodeTexts(to reflect.Value) {
	mapping, ok := v.node.(*ast.MappingNode)
	if !ok {
		v.unexpected("a mapping")
		return
	}
	to.Set(reflect.MakeMap(to.Type()))
	for _, entry := range mapping.Values {
		key := reflect.ValueOf(entry.Key.GetToken().Value)
		at := value{decoder: v.decoder, path: v.pathOf(key.String()), node: entry.Value}
		if to.MapIndex(key).IsValid() {
			at.failf("already given")
			continue
		}
		s, _ := at.text("text")
		to.SetMapIndex(key, reflect.ValueOf(s).Convert(to.Type().Elem()))
	}
}

// decodeBFD reads true, false, or a mapping, which enables it unless it says otherwise.
func (v value) decodeBFD(to *v1alpha1.BFD) {
	on := true
	switch v.node.(type) {
	case *ast.BoolNode:
		flag(v, &on)
	case *ast.MappingNode:
		decode(v, to)
	default:
		v.unexpected("true, false or a mapping")
		return
	}
	if to.Enabled == nil {
		to.Enabled = &on
	}
}
