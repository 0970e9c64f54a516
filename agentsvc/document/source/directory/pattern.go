package directory

import (
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"stoa/agentsvc/config"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/source"
)

// patterns decide which files are listed, and who may read them. They are immutable.
type patterns struct {
	include, exclude []glob
	rules            []accessRule
	reads            func(name string) bool // see Options.Reads
}

// accessRule is a rule of the configuration.
type accessRule struct {
	glob   glob
	access document.Access
}

// newPatterns returns the patterns of a configuration, whose form package config has checked.
func newPatterns(c *config.Source, reads func(string) bool) patterns {
	p := patterns{reads: reads}
	for _, text := range c.Include {
		p.include = append(p.include, newGlob(text))
	}
	for _, text := range c.Exclude {
		p.exclude = append(p.exclude, newGlob(text))
	}
	for _, rule := range c.Access {
		if rule != nil {
			p.rules = append(p.rules, accessRule{newGlob(rule.Path), source.NewAccess(rule.Subjects, rule.Roles)})
		}
	}
	return p
}

// glob is a pattern of paths.
type glob struct {
	pattern string
	// hidden reports that the pattern writes a name that begins with a dot, and so may fit such names.
	hidden bool
}

// newGlob returns the pattern for a text of the configuration. Without a slash it fits in any folder.
func newGlob(text string) glob {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "./"), "/")
	if !strings.Contains(text, "/") && text != "**" {
		text = "**/" + text
	}
	return glob{pattern: text, hidden: isHidden(text)}
}

// fits reports whether the pattern fits a path or a folder above it: a rule for the folder "hr" must not leave the files
// in it open. An invalid pattern fits none.
func (g glob) fits(name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if ok, err := doublestar.Match(g.pattern, name); err == nil && ok {
			return true
		}
	}
	return false
}

// isHidden reports whether a path has a name that begins with a dot.
func isHidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}

// mayVisit reports whether a file is listed, or whether a folder may hold files that are.
func (p patterns) mayVisit(name string, folder bool) bool {
	if path.Base(name) == ".git" {
		return false
	}
	for _, g := range p.exclude {
		if g.fits(name) {
			return false
		}
	}
	hidden := isHidden(name)
	if folder {
		// The folder of a pattern that writes a dot is entered to look; its files are matched one by one.
		return !hidden || p.includesHidden()
	}
	if len(p.include) == 0 {
		return !hidden && (p.reads == nil || p.reads(path.Base(name)))
	}
	for _, g := range p.include {
		if (g.hidden || !hidden) && g.fits(name) {
			return true
		}
	}
	return false
}

// includesHidden reports whether a pattern of include writes a name that begins with a dot.
func (p patterns) includesHidden() bool {
	for _, g := range p.include {
		if g.hidden {
			return true
		}
	}
	return false
}
