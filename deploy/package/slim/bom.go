package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// nameModules replaces the folders of copies in a CycloneDX list by the modules that they are copies of, with their
// versions, by which scanners know them, and says that they were changed.
func nameModules(root, file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := string(raw)
	for _, module := range listCopied() {
		found, err := findModule(root, module)
		if err != nil {
			return err
		}
		folder := "./" + outDir + "/" + nameFolder(module)
		component := regexp.MustCompile(`"name": *"` + regexp.QuoteMeta(folder) + `",\s*"version": *"\(devel\)"`)
		if n := len(component.FindAllString(text, -1)); n != 1 {
			return fmt.Errorf("%s has the component %s %d times instead of once", file, folder, n)
		}
		text = component.ReplaceAllLiteralString(text, fmt.Sprintf(`"name": %q, "version": %q, "pedigree": {"notes": "Changed by deploy/package/slim."}`, module, found.Version))
		text = strings.ReplaceAll(text, folder+"@(devel)", module+"@"+found.Version)
	}
	return os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // it is published
}

// listCopied returns the modules that are copied, each once.
func listCopied() []string {
	modules := []string{tokenizerModule}
	seen := map[string]bool{"": true} // the standard library
	for _, f := range changedFiles {
		if !seen[f.module] {
			seen[f.module] = true
			modules = append(modules, f.module)
		}
	}
	return modules
}
