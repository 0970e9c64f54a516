package mcpparser

import (
	"strings"

	"stoa/agentsvc/document"
)

// Bounds of what headings cost: a section repeats those above it.
const (
	maxHeading  = 200 // bytes of one
	maxSections = 50_000
)

// splitSections cuts Markdown at its headings; ok is false if there are more than maxSections. A section's place is the path of headings above it, with its own. What is
// in a fenced block of code is no heading. Text without headings is one section.
func splitSections(text string) (sections []document.Section, ok bool) {
	var headings [6]string
	var section strings.Builder
	place, line := document.Place{Line: 1}, 0
	flush := func() {
		if strings.TrimSpace(section.String()) != "" && len(sections) <= maxSections {
			sections = append(sections, document.Section{Text: section.String(), Place: place})
		}
		section.Reset()
	}
	fence := ""
	for l := range strings.Lines(text) {
		line++
		trimmed := strings.TrimSpace(l)
		switch mark := fenceOf(trimmed); {
		case fence == "" && mark != "":
			fence = mark
		case fence != "" && strings.HasPrefix(mark, fence) && strings.Trim(trimmed, fence[:1]) == "":
			fence = ""
		case fence == "":
			if level, title := headingOf(l); level > 0 {
				flush()
				headings[level-1] = cutHeading(title)
				clear(headings[level:])
				place = document.Place{Heading: joinHeadings(headings[:level]), Line: line}
			}
		}
		section.WriteString(l)
	}
	flush()
	return sections, len(sections) <= maxSections
}

// cutHeading returns the beginning of a heading that is longer than maxHeading.
func cutHeading(title string) string {
	if len(title) <= maxHeading {
		return title
	}
	return strings.ToValidUTF8(title[:maxHeading], "")
}

// fenceOf returns the mark of a line that may open or close a block of code, "" if it is none.
func fenceOf(line string) string {
	for _, c := range []string{"`", "~"} {
		if n := len(line) - len(strings.TrimLeft(line, c)); n >= 3 {
			return line[:n]
		}
	}
	return ""
}

// headingOf returns the level of a line that is a heading, and its text; 0 if it is none. As CommonMark says, there may be
// three spaces before it, and a space or the end of the line follows the signs.
func headingOf(line string) (level int, title string) {
	line = strings.TrimRight(line, "\r\n")
	text := strings.TrimLeft(line, " ")
	if len(line)-len(text) > 3 {
		return 0, ""
	}
	title = strings.TrimLeft(text, "#")
	level = len(text) - len(title)
	if level < 1 || level > 6 || title != "" && title[0] != ' ' && title[0] != '\t' {
		return 0, ""
	}
	return level, strings.TrimSpace(strings.TrimRight(strings.TrimSpace(title), "#"))
}

// joinHeadings returns a path of headings, without the levels that have none.
func joinHeadings(headings []string) string {
	var path []string
	for _, h := range headings {
		if h != "" {
			path = append(path, h)
		}
	}
	return strings.Join(path, " > ")
}
