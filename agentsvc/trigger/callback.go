package trigger

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// Callback finds the URL to which the result of a delivery is posted: it stands in the delivery's body, and its host
// must be in a list. The list keeps a sender from directing results to any address.
type Callback struct {
	// Field is the path of the URL in the body, as in [Field].
	Field string
	// Hosts are the allowed hosts, with a port unless it is the scheme's default.
	Hosts []string
}

// FieldPath returns the name of the field in error messages.
func (c *Callback) FieldPath() string { return "body." + c.Field }

// FindAddress returns the URL. A body without one, or with one on another host, is an error with [agentsvc.CodeInvalid].
func (c *Callback) FindAddress(contentType string, body []byte) (string, error) {
	payload, err := decodePayload(contentType, body)
	if err != nil {
		return "", err
	}
	v, ok := lookupPath(payload, c.Field)
	text, isText := v.(string)
	switch {
	case !ok:
		return "", agentsvc.NewInvalidError("body", "has no %s: the address that the result is to be posted to", c.Field)
	case !isText:
		return "", agentsvc.NewInvalidError(c.FieldPath(), "must be a text: the address that the result is to be posted to")
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "", agentsvc.NewInvalidError(c.FieldPath(), "is no address of the web")
	}
	if u.User != nil {
		return "", agentsvc.NewInvalidError(c.FieldPath(), "must not hold a name or password")
	}
	if !slices.ContainsFunc(c.Hosts, func(listed string) bool { return hostPort(listed, u.Scheme) == hostPort(u.Host, u.Scheme) }) {
		return "", agentsvc.NewInvalidError(c.FieldPath(), "is on a host that is not allowed: add %q to response.callback_hosts of the agent's trigger", shorten(u.Host))
	}
	return text, nil
}

// shorten returns the beginning of a host that is too long to be one.
func shorten(host string) string { return host[:min(len(host), 260)] }

// hostPort returns a host in lower case with its port, by default the scheme's.
func hostPort(host, scheme string) string {
	u := url.URL{Host: host}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return strings.ToLower(net.JoinHostPort(u.Hostname(), port))
}
