package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/surface/tlscert"
)

// soonExpired is how long before its end a certificate is a warning, as for the alert StoaCertificateExpires.
const soonExpired = 14 * 24 * time.Hour

// checkCertificate reports whether the files of server.tls are a certificate and its key, whether clients will trust it,
// and when it ends.
func (i *inspector) checkCertificate(context.Context) []Check {
	const name = "certificate"
	if i.Config == nil || !i.Config.Server.TLS.Enabled {
		return []Check{skip(name, "server.tls is not enabled")}
	}
	files := i.Config.Server.TLS
	c, err := tlscert.NewConfig(files, slog.New(slog.DiscardHandler))
	var pair *tls.Certificate
	if err == nil {
		pair, err = c.GetCertificate(nil)
	}
	if err != nil {
		return []Check{fail(name, err.Error(), adviseCertificate(err))}
	}
	end, err := i.verifyChain(pair.Certificate, i.publicHost())
	if err != nil {
		check := warn(name, files.CertFile+": "+describeCertificateError(err), "put the certificates of the intermediate authorities behind that of the server in the file; for an authority of your own give its certificate to clients, and to this command with --ca")
		var invalid x509.CertificateInvalidError
		if errors.As(err, &invalid) {
			check.Status, check.Action = Failure, "renew the certificate"
		}
		return []Check{check}
	}
	return []Check{i.checkExpiry(name, files.CertFile, end)}
}

// adviseCertificate returns what to do about files of server.tls that cannot be used.
func adviseCertificate(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "make both files readable for the group of the user that runs Stoa, as in: install -m 0640 -g stoa tls.crt tls.key /etc/stoa/"
	}
	return "write a certificate with its chain, and its key, to the files; a server does not start without them"
}

// publicHost returns the host that clients verify, "" if it is not known.
func (o Options) publicHost() string {
	u, err := url.Parse(o.Settings.Cards.PublicURL)
	if err != nil || u.Scheme != "https" {
		return ""
	}
	return u.Hostname()
}

// verifyChain verifies a chain as clients of host do; "" is any host. It returns when its first certificate ends that is
// not the authority's.
func (i *inspector) verifyChain(chain [][]byte, host string) (end time.Time, err error) {
	options := x509.VerifyOptions{DNSName: host, Roots: i.Roots, Intermediates: x509.NewCertPool(), CurrentTime: i.now()}
	var leaf *x509.Certificate
	for n, raw := range chain {
		c, err := x509.ParseCertificate(raw)
		if err != nil {
			return end, err
		}
		if n == 0 {
			leaf, end = c, c.NotAfter
		} else {
			options.Intermediates.AddCert(c)
		}
		if c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	if leaf == nil {
		return end, errors.New("there is no certificate")
	}
	_, err = leaf.Verify(options)
	return end, err
}

// checkExpiry reports when a certificate ends that is valid now.
func (i *inspector) checkExpiry(name, whose string, end time.Time) Check {
	left := end.Sub(i.now())
	detail := fmt.Sprintf("%s: the chain is trusted, %d days left", whose, int(left.Hours()/24))
	if left < soonExpired {
		return warn(name, detail, "renew the certificate; find out why what renews it did not")
	}
	return pass(name, "%s", detail)
}

// describeCertificateError returns why a certificate is not trusted, in a sentence.
func describeCertificateError(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("the certificate is not valid now (from %s to %s)", invalid.Cert.NotBefore.UTC().Format(time.DateOnly), invalid.Cert.NotAfter.UTC().Format(time.DateOnly))
	case errors.As(err, &unknown):
		return "the certificate is signed by no authority that this machine trusts"
	case errors.As(err, &host):
		return "the certificate is not for " + host.Host
	}
	return err.Error()
}

// describeConnectionError returns why an address does not answer, with the cause. The address is not in it, which could
// have a password.
func describeConnectionError(err error) string {
	text := egress.PublicMessage(err)
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	return fmt.Sprintf("%s (%s)", text, strings.Join(strings.Fields(err.Error()), " "))
}

// checkPublicURL asks the public URL for the health of a server, as clients reach it: over the balancer and with its
// certificate.
func (i *inspector) checkPublicURL(ctx context.Context) []Check {
	const name = "public_url"
	address := i.Settings.Cards.PublicURL
	if address == "" {
		return []Check{skip(name, "no --public-url")}
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return []Check{fail(name, "--public-url is no URL", "write it as https://agents.example.com")}
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return []Check{warn(name, address+" is not encrypted: everyone on the way reads credentials and messages", "put a balancer with TLS in front, or set server.tls, and use https in --public-url")}
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: i.Roots, Time: i.now, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true, ForceAttemptHTTP2: true}
	client := &http.Client{Transport: transport, Timeout: checkTimeout / 2, CheckRedirect: stayHere}
	answer, err := askHealth(ctx, client, address)
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &untrusted):
		return []Check{fail(name, address+": "+describeCertificateError(untrusted.Err), "renew the certificate of the balancer, or correct its name or chain; for an authority of your own use --ca")}
	case err != nil:
		return []Check{warn(name, address+": "+describeConnectionError(err), "start the server and the balancer; if only this machine cannot reach the address, ask from another: stoa health --server "+address)}
	}
	if answer.Status == "" {
		return []Check{warn(name, fmt.Sprintf("%s/health answers %d, and not as a server of Stoa", address, answer.code), "start the server; if it runs, correct the balancer's route or --public-url")}
	}
	if answer.tls == nil {
		return []Check{pass(name, "%s answers", address)}
	}
	return []Check{i.checkExpiry(name, address, answer.tls.PeerCertificates[0].NotAfter)}
}
