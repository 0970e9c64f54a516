package trigger

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// Callback is where the sender of a delivery wants its result: at an address that stands in the body, on one of some hosts.
type Callback struct {
	Field string   // of the body, a path as that of a [Field]
	Hosts []string // with a port where it is not the usual one
}

// FieldPath names the address as those who are told what is wrong with it know it.
func (c *Callback) FieldPath() string { return "body." + c.Field }

// FindAddress finds the address. It returns an [agentsvc.InvalidError] for a body that has none, or one on another host.
func (c *Callback) FindAddress(contentType string, body []byte) (string, error) {
	payload, err := DecodePayload(contentType, body)
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
		return "", agentsvc.NewInvalidError(c.FieldPath(), "is on a host that is not among the trigger's callback_hosts")
	}
	return text, nil
}

// hostPort is a host with its port, which is the scheme's where it has none.
func hostPort(host, scheme string) string {
	u := url.URL{Host: host}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return strings.ToLower(net.JoinHostPort(u.Hostname(), port))
}
