// SPDX-License-Identifier: Apache-2.0

package main

import "regexp"

// pattern is a phrase that this project does not use.
type pattern struct {
	text    string // as it is listed in known.txt
	instead string
	find    *regexp.Regexp
	except  *regexp.Regexp // matches that are standard English after all
	files   *regexp.Regexp // files that may use it
}

func (p *pattern) allow(name string) bool { return p.files.MatchString(name) }

// never matches nothing.
const never = `[^\s\S]`

func is(text, expression, instead string) pattern {
	return pattern{text, instead, regexp.MustCompile(`(?i)` + expression), regexp.MustCompile(never), regexp.MustCompile(never)}
}

func (p pattern) but(expression string) pattern {
	p.except = regexp.MustCompile(`(?i)` + expression)
	return p
}

func (p pattern) in(files string) pattern {
	p.files = regexp.MustCompile(files)
	return p
}

var patterns = []pattern{
	is("anew", `\banew\b`, `"again", or the verb with re-`),
	is("astray", `\b(go(es)?|went|gone)? ?astray\b`, `"misrouted", "stale"`),
	is("believe", `\b(believes?|believed)\b`, `"assumes", "has"`),
	is("beside", `\bbeside\b`, `"with", "in addition to"`),
	is("bell", `\b(bell|rings it|rung)\b`, `"trigger", "enqueue"`),
	is("farewell", `\b(farewell|good-?bye)\b`, `"close", "shutdown"`),
	is("goes on", `\bgoes on\b`, `"continues"`),
	is("hear", `\b(hears?|heard|hearing)\b`, `"receives", "received"`),
	is("in vain", `\bin vain\b`, `"without success", "failed"`),
	is("is no", `\b\S+ (is|are) no [a-z]+`, `"is not a"`).but(`^there (is|are) no | no (longer|larger|more)$`),
	is("nobody", `\b(nobody|no one)\b`, `the noun that is absent`),
	is("of late", `\bof late\b`, `"recently"`),
	is("somebody", `\b(somebody|someone)\b`, `the noun that is meant`),
	is("tell", `\b(tell( apart)?|tells|telling|told|teller)\b`, `"sends", "reports", "notifies"`).but(`apart$`),
	is("to and fro", `\bto and fro\b`, `"repeatedly"`),
	is("what becomes of", `\bwhat becomes of\b`, `"what happens to", "the outcome of"`),
	is("who does", `(^|[.,;:] )who [a-z]+s\b`, `the noun, with "that"`),
	is("whoever", `\b(whoever|whomever)\b`, `"any client that", "the caller"`),
	is("without a word", `\bwithout a word\b`, `"without a NOTIFICATION", "silently"`),
	is("design document", `\bDESIGN\.md\b`, `a page of docs/, or nothing`),
}
