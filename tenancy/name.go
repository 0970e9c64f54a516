package tenancy

import (
	"maps"
	"regexp"
	"slices"
	"unicode"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/tenancy/grant"
)

// Bounds of an app's parts. Counts unless noted otherwise.
const (
	// MaxConfigSize bounds the text of a configuration, in bytes.
	MaxConfigSize = 1 << 20
	MaxSecrets    = 1000
	// MaxSecretSize bounds the value of a secret, in bytes.
	MaxSecretSize = 64 << 10
	maxLabels     = 64
	// maxRevocations bounds the revoked subjects of an app, which are loaded with each snapshot.
	maxRevocations = 10_000
	// maxDisplayName bounds display names and the values of labels, in characters.
	maxDisplayName = 200
	// maxRevisions is how many revisions of an app are stored; older ones are deleted with each new one.
	maxRevisions = 100
)

var (
	// appNamePattern is that of a DNS label (RFC 1123), because a name may become part of a host.
	appNamePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	// secretNamePattern matches the names that ${NAME} in a configuration can refer to.
	secretNamePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	// wordPattern matches names of labels and plans.
	wordPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
)

// IsValidAppName reports whether name has the form of an app's name.
func IsValidAppName(name string) bool { return appNamePattern.MatchString(name) }

func checkAppName(name string) error {
	if !IsValidAppName(name) {
		return agentsvc.NewInvalidError("name", "must be 1 to 63 lower-case letters, digits and inner hyphens")
	}
	return nil
}

func checkConfig(src []byte) error {
	switch {
	case len(src) == 0:
		return agentsvc.NewInvalidError("config", "is missing")
	case len(src) > MaxConfigSize:
		return agentsvc.NewInvalidError("config", "has %d bytes, %d are allowed", len(src), MaxConfigSize)
	}
	return nil
}

func checkSecret(name, value string) error {
	switch {
	case !secretNamePattern.MatchString(name):
		return agentsvc.NewInvalidError("secrets", "%.40q is no name for a secret: letters, digits and underscores, no digit first, 128 at most", name)
	case len(value) > MaxSecretSize:
		return agentsvc.NewInvalidError("secrets."+name, "has %d bytes, %d are allowed", len(value), MaxSecretSize)
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

// checkText returns an error with [agentsvc.CodeInvalid] unless s is valid UTF-8 without control characters and has at
// most most characters.
func checkText(field, s string, most int) error {
	if utf8.RuneCountInString(s) > most || !utf8.ValidString(s) {
		return agentsvc.NewInvalidError(field, "must be at most %d characters of text", most)
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return agentsvc.NewInvalidError(field, "must not hold control characters")
		}
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return agentsvc.NewInvalidError("labels", "there are %d, %d are allowed", len(labels), maxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !wordPattern.MatchString(key) {
			return agentsvc.NewInvalidError("labels", "%.40q is no label: letters, digits and inner _ . -, 63 at most", key)
		}
		if err := checkText("labels."+key, labels[key], maxDisplayName); err != nil {
			return err
		}
	}
	return checkTraceRatio(labels)
}

func checkPlan(plan string) error {
	if plan != "" && !wordPattern.MatchString(plan) {
		return agentsvc.NewInvalidError("plan", "must be the name of a plan")
	}
	return nil
}

// normalizeGrants returns the grants sorted, each once, or an error with [agentsvc.CodeInvalid]; see
// [grant.List.Normalize].
func normalizeGrants(grants grant.List, guard *grant.Guard) (grant.List, error) {
	normalized, err := grants.Normalize(guard)
	if err != nil {
		return nil, agentsvc.NewInvalidError("grants", "%v", err)
	}
	return normalized, nil
}
