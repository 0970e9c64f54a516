package crossorigin

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"testing"

	"stoa/agentsvc/config"
)

// TestPageGuard checks under which hosts and from which origins an app without authentication accepts requests.
func TestPageGuard(t *testing.T) {
	t.Parallel()
	alone := []string{"127.0.0.1", "127.0.0.1:8080"}
	everywhere := []string{"0.0.0.0", "[::]:8080", "box"}
	one := []string{"10.0.0.5", "10.0.0.5:8080", "grpc.example.com:443"}
	named := []string{"https://page.example.com"}
	tests := []struct {
		name    string
		listens []string
		public  string
		origins []string
		host    string
		appHost bool // the host is one that the operator configured for apps
		origin  string
		site    string
		want    error
	}{
		{name: "a program", listens: alone, host: "127.0.0.1:8080"},
		{name: "another address of loopback", listens: one, host: "127.0.0.2:8080"},
		{name: "no host", listens: alone},
		{name: "a foreign address at loopback", listens: alone, host: "10.0.0.5:8080", want: errForeignHost},
		{name: "a foreign name", listens: alone, host: "evil.example", want: errForeignHost},
		{name: "the listener's address", listens: one, host: "10.0.0.5:8080"},
		{name: "the listener's address in IPv6", listens: one, host: "[::ffff:10.0.0.5]:8080"},
		{name: "the address of another listener", listens: one, host: "10.0.0.6", want: errForeignHost},
		{name: "the name for gRPC", listens: one, host: "grpc.example.com"},
		{name: "any address where it listens at all", listens: everywhere, host: "192.168.1.5:9000"},
		{name: "any address in IPv6", listens: everywhere, host: "[2001:db8::1]:9000"},
		{name: "the machine's name", listens: everywhere, host: "BOX:8080"},
		{name: "another name", listens: everywhere, host: "box.evil.example", want: errForeignHost},
		{name: "a name like an address", listens: everywhere, host: "192.168.1.5.evil.example", want: errForeignHost},
		{name: "a number", listens: everywhere, host: "3232235781", want: errForeignHost},
		{name: "the public URL's", listens: alone, public: "https://Agents.example.com/stoa", host: "agents.example.com:443"},
		{name: "below the public URL's", listens: alone, public: "https://agents.example.com", host: "x.agents.example.com", want: errForeignHost},
		{name: "a host of an app", listens: alone, host: "default.agents.example.com", appHost: true},
		{name: "a host of an app, another page", listens: alone, host: "default.agents.example.com", appHost: true, origin: "https://acme.agents.example.com", want: errForeignPage},

		{name: "a page of its own", listens: everywhere, host: "192.168.1.5:8080", origin: "http://192.168.1.5:8080"},
		{name: "another port of the machine", listens: everywhere, host: "192.168.1.5:8080", origin: "http://192.168.1.5:3000", want: errForeignPage},
		{name: "a page of the public URL, behind a proxy", listens: alone, public: "https://agents.example.com:443", host: "127.0.0.1:8080", origin: "https://agents.example.com", site: "cross-site"},
		{name: "the public URL's host over http", listens: alone, public: "https://agents.example.com", host: "127.0.0.1:8080", origin: "http://agents.example.com", want: errForeignPage},
		{name: "a page of this machine", listens: alone, host: "127.0.0.1:8080", origin: "http://localhost:3000", site: "cross-site"},
		{name: "a page called like this machine", listens: alone, host: "127.0.0.1:8080", origin: "http://localhost.example.com", want: errForeignPage},
		{name: "a page of nowhere", listens: alone, host: "127.0.0.1:8080", origin: "null", want: errForeignPage},
		{name: "an extension", listens: alone, host: "127.0.0.1:8080", origin: "moz-extension://localhost", want: errForeignPage},
		{name: "a picture", listens: alone, host: "127.0.0.1:8080", site: "cross-site", want: errForeignPage},
		{name: "a picture of a sister", listens: alone, host: "127.0.0.1:8080", site: "same-site", want: errForeignPage},
		{name: "a word that does not exist yet", listens: alone, host: "127.0.0.1:8080", site: "near-site", want: errForeignPage},
		{name: "somebody types the address", listens: alone, host: "127.0.0.1:8080", site: "none"},

		{name: "every origin", listens: alone, origins: []string{"*"}, host: "evil.example", origin: "https://evil.example"},
		{name: "a named origin", listens: alone, origins: named, host: "127.0.0.1", origin: "https://page.example.com"},
		{name: "another origin is looked at elsewhere", listens: alone, origins: named, host: "127.0.0.1", origin: "https://evil.example"},
		{name: "a foreign name beside origins", listens: alone, origins: named, host: "evil.example", origin: "http://evil.example", want: errForeignHost},
		{name: "the name of an origin", listens: alone, origins: named, host: "page.example.com:8080"},
		{name: "no origin at all", listens: alone, origins: []string{}, host: "evil.example", want: errForeignHost},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			public := tt.public
			if public == "" {
				public = "http://localhost:8080"
			}
			base, err := url.Parse(public)
			if err != nil {
				t.Fatal(err)
			}
			h := http.Header{}
			h.Set("Origin", tt.origin)
			h.Set("Sec-Fetch-Site", tt.site)
			g := NewPageGuard(config.CORS{AllowedOrigins: tt.origins}, base, tt.listens)
			if got := g.CheckRequest(tt.host, h.Get, tt.appHost); !errors.Is(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestPageGuardOfActions checks the requests that a page can make without a script, to a webhook without a secret.
func TestPageGuardOfActions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, method, public, host string
		appHost                    bool
		origins                    []string
		site                       string
		want                       error
	}{
		{name: "a program on this machine", method: "GET", host: "127.0.0.1:8080"},
		{name: "a picture on this machine", method: "GET", host: "127.0.0.1:8080", site: "cross-site", want: errForeignPage},
		{name: "a program or a picture over plain HTTP", method: "GET", host: "10.0.0.5:8080", want: errUnknownPage},
		{name: "its header alone", method: "HEAD", host: "10.0.0.5:8080", want: errUnknownPage},
		{name: "a listed origin does not allow it", method: "GET", host: "10.0.0.5:8080", origins: []string{"http://a.example"}, want: errUnknownPage},
		{name: "every origin", method: "GET", host: "10.0.0.5:8080", origins: []string{"*"}},
		{name: "a program that posts", method: "POST", host: "10.0.0.5:8080"},
		{name: "a program over https", method: "GET", public: "https://agents.example.com", host: "agents.example.com"},
		{name: "an app's host over https", method: "GET", public: "https://agents.example.com", host: "acme.agents.example.com", appHost: true},
		{name: "around the proxy", method: "GET", public: "https://agents.example.com", host: "10.0.0.5:8080", want: errUnknownPage},
		{name: "no host", method: "GET"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			base, err := url.Parse(cmp.Or(tt.public, "http://10.0.0.5:8080"))
			if err != nil {
				t.Fatal(err)
			}
			h := http.Header{}
			h.Set("Sec-Fetch-Site", tt.site)
			g := NewPageGuard(config.CORS{AllowedOrigins: tt.origins}, base, []string{"10.0.0.5"})
			if got := g.CheckAction(tt.method, tt.host, h.Get, tt.appHost); !errors.Is(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
