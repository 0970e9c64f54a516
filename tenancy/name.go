package tenancy

import (
	"maps"
	"regexp"
	"slices"
	"unicode"
	"unicode/utf8"

	"stoa/tenancy/grant"
)

// Bounds of what an app may hold.
const (
	MaxConfig   = 1 << 20 // bytes of a configuration
	MaxSecrets  = 1000
	MaxSecret   = 64 << 10 // bytes of a secret's value
	maxLabels   = 64
	maxMarks    = 10_000
	maxDisplay  = 200
	maxRevision = 100 // revisions kept of an app
)

var (
	appName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	secretName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	word       = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
)

// ValidName reports whether an app may bear the name.
func ValidName(name string) bool { return appName.MatchString(name) }

func checkName(name string) error {
	if !ValidName(name) {
		return invalid("name", "must be 1 to 63 lower-case letters, digits and inner hyphens")
	}
	return nil
}

func checkConfig(src []byte) error {
	switch {
	case len(src) == 0:
		return invalid("config", "is missing")
	case len(src) > MaxConfig:
		return invalid("config", "has %d bytes, %d are allowed", len(src), MaxConfig)
	}
	return nil
}

func checkSecret(name, value string) error {
	switch {
	case !secretName.MatchString(name):
		return invalid("secrets", "%.40q is no name for a secret: letters, digits and underscores, no digit first, 128 at most", name)
	case len(value) > MaxSecret:
		return invalid("secrets."+name, "has %d bytes, %d are allowed", len(value), MaxSecret)
	}
	return nil
}

func checkSecrets(secrets map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		if err := checkSecret(name, secrets[name]); err != nil {
			return err
		}
	}
	return nil
}

func checkText(field, s string, most int) error {
	if utf8.RuneCountInString(s) > most || !utf8.ValidString(s) {
		return invalid(field, "must be at most %d characters of text", most)
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return invalid(field, "must not hold control characters")
		}
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return invalid("labels", "there are %d, %d are allowed", len(labels), maxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !word.MatchString(key) {
			return invalid("labels", "%.40q is no label: letters, digits and inner _ . -, 63 at most", key)
		}
		if err := checkText("labels."+key, labels[key], maxDisplay); err != nil {
			return err
		}
	}
	return checkTraceRatio(labels)
}

func checkPlan(plan string) error {
	if plan != "" && !word.MatchString(plan) {
		return invalid("plan", "must be the name of a plan")
	}
	return nil
}

// tidyGrants returns grants in order and each once.
func tidyGrants(grants grant.List, guard *grant.Guard) (grant.List, error) {
	tidy, err := grants.Tidy(guard)
	if err != nil {
		return nil, invalid("grants", "%v", err)
	}
	return tidy, nil
}
