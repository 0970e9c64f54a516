package main

import (
	"go/ast"
	"go/doc/comment"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"
)

// qualifiedName is a name of another package as it is written in a comment: package.Name or package.Type.Member.
var qualifiedName = regexp.MustCompile(`(?:^|[^\w./-])([a-z]\w*)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)

// declaringFile is a reference to functions by their file: a path, and in parentheses the functions and why.
var declaringFile = regexp.MustCompile(`([\w/-]+\.go)\s+\(([^)]+)\)`)

// declaredWord is a word of such a reference that can only be a name: Type.method, or one with a capital inside.
var declaredWord = regexp.MustCompile(`[A-Za-z]\w*\.[A-Za-z]\w*|[a-z]\w*[A-Z]\w*`)

// TestReferences checks that the names that comments refer to exist: names of our packages, links, and functions of a
// file.
func TestReferences(t *testing.T) {
	t.Parallel()
	files := listGoFiles(t)
	declared := map[string]map[string]bool{} // by package name: Name and Type.Member
	byFile := map[string]map[string]bool{}   // by path: the same
	for _, f := range files {
		byFile[f.path] = map[string]bool{}
		name := strings.TrimSuffix(f.tree.Name.Name, "_test")
		if declared[name] == nil {
			declared[name] = map[string]bool{}
		}
		for _, decl := range f.tree.Decls {
			addDeclared(declared[name], decl)
			addDeclared(byFile[f.path], decl)
		}
	}
	for _, f := range files {
		own := declared[strings.TrimSuffix(f.tree.Name.Name, "_test")]
		for _, group := range f.tree.Comments {
			for _, m := range qualifiedName.FindAllStringSubmatch(group.Text(), -1) {
				names := declared[m[1]]
				if names == nil || names[m[2]] && (m[3] == "" || names[m[2]+"."+m[3]]) {
					continue
				}
				t.Errorf("%s: a comment refers to %s, which does not exist", f.path, strings.Trim(m[0], " ([*\n"))
			}
			for _, m := range declaringFile.FindAllStringSubmatch(group.Text(), -1) {
				names := byFile[m[1]]
				if names == nil {
					names = byFile[path.Join(path.Dir(f.path), m[1])]
				}
				for _, name := range declaredWord.FindAllString(m[2], -1) {
					if !names[name] {
						t.Errorf("%s: a comment refers to %s of %s, which does not exist", f.path, name, m[1])
					}
				}
			}
			for _, link := range listLinks(group.Text()) {
				if name := strings.TrimPrefix(link.Recv+"."+link.Name, "."); !own[name] {
					t.Errorf("%s: a comment links to [%s], which does not exist", f.path, name)
				}
			}
		}
	}
}

// listLinks returns the links to names of the same package.
func listLinks(text string) (links []*comment.DocLink) {
	parser := comment.Parser{LookupSym: func(string, string) bool { return true }}
	for _, block := range parser.Parse(text).Content {
		paragraph, ok := block.(*comment.Paragraph)
		if !ok {
			continue
		}
		for _, part := range paragraph.Text {
			if link, ok := part.(*comment.DocLink); ok && link.ImportPath == "" && link.Name != "" && link.Name != strings.ToUpper(link.Name) { // [DONE] is text
				links = append(links, link)
			}
		}
	}
	return links
}

// addDeclared adds the names of a declaration, and of a type's members as Type.Member.
func addDeclared(names map[string]bool, decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv == nil {
			names[decl.Name.Name] = true
		} else {
			names[receiverType(decl.Recv.List[0].Type)+"."+decl.Name.Name] = true
		}
	case *ast.GenDecl:
		if decl.Tok == token.IMPORT {
			return
		}
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					names[name.Name] = true
				}
			case *ast.TypeSpec:
				names[spec.Name.Name] = true
				ast.Inspect(spec.Type, func(n ast.Node) bool {
					field, ok := n.(*ast.Field)
					if !ok {
						return true
					}
					for _, name := range field.Names {
						names[spec.Name.Name+"."+name.Name] = true
					}
					if len(field.Names) == 0 { // embedded
						names[spec.Name.Name+"."+receiverType(field.Type)] = true
					}
					return true
				})
			}
		}
	}
}
