package config

import (
	"fmt"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"stoa/agentsvc/config/document"
)

// Bounds of a pattern of paths. The cost of matching grows with the product of the lengths of its lists {a,b}.
const (
	maxGlobBytes  = 500
	maxGlobBraces = 4
	maxGlobCommas = 16
	// maxGlobs bounds each list of patterns, which every file is compared with.
	maxGlobs = 100
	// maxIdentifierBytes bounds the name of a table or column. It is longer than any of the three engines allows.
	maxIdentifierBytes = 128
)

// checkRules checks that a search by vectors has an embedder, and warns where watch has no effect.
func (sto *DocumentStore) checkRules(c *validation, s document.Location) {
	if sto.Embedder == "" && !c.doc.HasValue(s.Value, "embedder") {
		if sto.Search.EnableHyDE {
			c.addProblem(s.Child("search").Child("enable_hyde"), "needs an embedder: the answer that a model makes up is searched for by its vector")
		}
		if sto.Search.Threshold > 0 {
			c.addProblem(s.Child("search").Child("threshold"), "needs an embedder: it compares vectors")
		}
	}
	if sto.Watch && sto.Source != nil && sto.Source.Type != "directory" && sto.Source.Type != "" {
		c.addWarning(s.Child("watch"), "has an effect for sources of type directory only: what is uploaded is indexed at once, other sources are listed again from time to time")
	}
}

// checkRules checks that the source has the block of its type, and the grant for a folder of the host.
func (sou *Source) checkRules(c *validation, s document.Location) {
	switch {
	case sou.Type == "directory":
		c.requireGrant(s.Child("type"), "filesystem")
		c.requireGrantedPath(s.Child("path"), "filesystem", sou.Path)
		if !c.doc.HasValue(s.Value, "path") {
			c.addProblem(s, "a directory source needs path")
		}
		c.checkGlobs(s.Child("include"), sou.Include)
		c.checkGlobs(s.Child("exclude"), sou.Exclude)
		c.checkAccessRules(s.Child("access"), sou.Access)
	case sou.Type == "sql" && sou.SQL == nil, sou.Type == "api" && sou.API == nil:
		c.addProblem(s, "a source of type "+sou.Type+" needs "+sou.Type)
	}
}

// checkAccessRules checks the patterns of rules. It warns if files may remain that no rule fits.
func (val *validation) checkAccessRules(s document.Location, rules []*AccessRule) {
	if len(rules) > maxGlobs {
		val.addProblem(s, fmt.Sprintf("holds more than %d rules", maxGlobs))
	}
	for i, rule := range rules {
		if rule != nil {
			val.checkGlob(s.Item(i).Child("path"), rule.Path)
		}
	}
	if len(rules) == 0 {
		return
	}
	if last := rules[len(rules)-1]; last != nil && last.Path != "**" && last.Path != "*" {
		val.addWarning(s, `leaves the files that no rule fits open to every caller of the app; a last rule with path "**" decides about them`)
	}
}

// checkGlobs checks a list of patterns.
func (val *validation) checkGlobs(s document.Location, list []string) {
	if len(list) > maxGlobs {
		val.addProblem(s, fmt.Sprintf("holds more than %d patterns", maxGlobs))
	}
	for i, glob := range list {
		val.checkGlob(s.Item(i), glob)
	}
}

// checkGlob checks a pattern of paths. A key that is not there is reported by its tag.
func (val *validation) checkGlob(s document.Location, glob string) {
	switch {
	case s.Value == nil:
	case glob == "":
		val.addProblem(s, "must not be empty")
	case len(glob) > maxGlobBytes, strings.Count(glob, "{") > maxGlobBraces, strings.Count(glob, ",") > maxGlobCommas:
		val.addProblem(s, fmt.Sprintf("is longer than %d bytes or has more than %d lists {a,b} or %d commas", maxGlobBytes, maxGlobBraces, maxGlobCommas))
	case strings.HasPrefix(glob, "/"), glob == "..", strings.HasPrefix(glob, "../"), strings.Contains(glob, "/../"), strings.HasSuffix(glob, "/.."):
		val.addProblem(s, "must be relative to path, without ..")
	case !doublestar.ValidatePattern(glob):
		val.addProblem(s, "is no pattern of paths: a bracket or brace is not closed")
	}
}

// checkRules checks that there are tables, each named once since their names begin the documents' ids.
func (sou *SQLSource) checkRules(c *validation, s document.Location) {
	seen := map[string]bool{}
	for i, table := range sou.Tables {
		if table == nil || table.Table == "" {
			continue
		}
		if seen[table.Table] {
			c.addProblem(s.Child("tables").Item(i).Child("table"), "is listed twice")
		}
		seen[table.Table] = true
	}
	if c.doc.HasValue(s.Value, "tables") && len(sou.Tables) == 0 {
		c.addProblem(s.Child("tables"), "must not be empty")
	}
}

// checkRules checks the names of the table and its columns.
func (tab *Table) checkRules(c *validation, s document.Location) {
	if strings.Count(tab.Table, ".") > 1 || strings.HasPrefix(tab.Table, ".") || strings.HasSuffix(tab.Table, ".") {
		c.addProblem(s.Child("table"), "must be the name of a table, or that of its schema, a dot and the table's")
	}
	c.checkIdentifier(s.Child("table"), tab.Table)
	c.checkIdentifier(s.Child("id_column"), tab.IDColumn)
	c.checkIdentifier(s.Child("updated_column"), tab.UpdatedColumn)
	c.checkIdentifier(s.Child("access_column"), tab.AccessColumn)
	if c.doc.HasValue(s.Value, "columns") && len(tab.Columns) == 0 {
		c.addProblem(s.Child("columns"), "must not be empty")
	}
	seen := map[string]bool{}
	for i, column := range tab.Columns {
		at := s.Child("columns").Item(i)
		c.checkIdentifier(at, column)
		switch {
		case column == "":
			c.addProblem(at, "must not be empty")
		case seen[column]:
			c.addProblem(at, "is listed twice")
		}
		seen[column] = true
	}
	if tab.AccessColumn != "" && seen[tab.AccessColumn] {
		c.addProblem(s.Child("access_column"), "is also one of columns: who may read a row is not part of its text")
	}
}

// checkIdentifier checks the name of a table or column. It is quoted in statements, so that it may have any letters.
func (val *validation) checkIdentifier(s document.Location, name string) {
	if len(name) > maxIdentifierBytes || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) {
		val.addProblem(s, fmt.Sprintf("is no name of a table or column: it is longer than %d bytes or has control characters", maxIdentifierBytes))
	}
}

// checkRules checks that there is one way to the next page.
func (p *Pagination) checkRules(c *validation, s document.Location) {
	c.requireOneOf(s, []string{"next_field", "page_param"})
	switch {
	case p.TokenParam != "" && p.NextField == "":
		c.addProblem(s.Child("token_param"), "needs next_field, the field with the token")
	case p.PageParam == "" && c.doc.HasValue(s.Value, "first_page"):
		c.addProblem(s.Child("first_page"), "needs page_param")
	}
}

// checkRules checks that there are tools and that extensions begin with a dot.
func (m *MCPParsers) checkRules(c *validation, s document.Location) {
	if c.doc.HasValue(s.Value, "tool_names") && len(m.ToolNames) == 0 {
		c.addProblem(s.Child("tool_names"), "must not be empty")
	}
	for i, extension := range m.Extensions {
		if !strings.HasPrefix(extension, ".") || len(extension) < 2 || strings.ContainsAny(extension, "/*? ") {
			c.addProblem(s.Child("extensions").Item(i), "must be a dot and the ending of file names, such as .pdf")
		}
	}
}
