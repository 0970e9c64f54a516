package main

import (
	"cmp"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"stoa/authz"
	"stoa/cmd/stoa/server"
)

// tokenName is the variable with the access token or API key of the commands that callers of an app use.
const tokenName = "STOA_TOKEN"

// tenantFlags are the flags of the commands that callers of an app use.
type tenantFlags struct {
	serverFlag `embed:""`
	App        string `placeholder:"NAME" help:"The app; without it, the token decides."`
	Token      string `env:"STOA_TOKEN" placeholder:"TOKEN" help:"The access token or API key, also in the file that $$STOA_TOKEN_FILE names."`
}

// newTenantClient returns a client with the caller's token as its credential; without one it sends none. scopes are
// what the command needs besides the scope that the server names when it refuses a call.
func (f tenantFlags) newTenantClient(scopes ...authz.Scope) (*client, error) {
	token, err := server.FindValue(f.Token, tokenName, "")
	if err != nil {
		return nil, err
	}
	api, err := f.newClient(token)
	if err == nil {
		api.app, api.scopes = f.App, scopes
	}
	return api, err
}

// appPath returns the path of an endpoint of the app; with --app the one below /apps/NAME.
func (f tenantFlags) appPath(path string) string {
	if f.App == "" {
		return path
	}
	return "/apps/" + url.PathEscape(f.App) + path
}

// taskPath returns the path of a task of the app.
func (f tenantFlags) taskPath(id string) string { return f.appPath("/tasks/" + url.PathEscape(id)) }

// formatFlags returns the flags that another command needs to reach the same app, each after a space. Those that come
// from the environment are left out, and so is the token, which must not be shown.
func (f tenantFlags) formatFlags() string {
	var out string
	for _, flag := range []struct{ name, value, usual string }{
		{"app", f.App, ""}, {"server", f.Server, cmp.Or(os.Getenv("STOA_SERVER"), defaultServer)}, {"ca", f.CA, os.Getenv("STOA_CA_FILE")},
	} {
		if flag.value != flag.usual {
			out += " --" + flag.name + " " + quoteWord(flag.value)
		}
	}
	return out
}

// plainWord matches text that a shell takes as one word, without a special meaning.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quoteWord returns text as one word of a shell's command line.
func quoteWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// missingScope matches the text with which package authz refuses a call.
var missingScope = regexp.MustCompile(`the scope "([a-z]+:[^" ]+)" is needed`)

// suggestToken returns the command that creates a token for a call that was refused with message, "" if the call was
// refused for another reason than a missing scope.
func (c *client) suggestToken(message string) string {
	found := missingScope.FindStringSubmatch(message)
	if found == nil {
		return ""
	}
	words := []string{found[1]}
	for _, s := range c.scopes {
		if !slices.Contains(words, string(s)) {
			words = append(words, string(s))
		}
	}
	return "stoa app token " + quoteWord(cmp.Or(c.app, "APP")) + " --sub NAME --role " + findSmallestRole(words) + " --scope " + quoteWord(strings.Join(words, " "))
}

// findSmallestRole returns the built-in role with the fewest scopes that has all of words. The role admin has every scope.
func findSmallestRole(words []string) string {
	smallest, size := authz.RoleAdmin, 0
	for _, role := range authz.BuiltInRoles() {
		covers := !slices.ContainsFunc(words, func(word string) bool {
			scope, _, err := authz.ParseScope("scope", word)
			return err != nil || !slices.Contains(role.Scopes, scope)
		})
		if covers && (size == 0 || len(role.Scopes) <= size) {
			smallest, size = role.Name, len(role.Scopes)
		}
	}
	return smallest
}
