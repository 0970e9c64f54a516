package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/tenancy/db/dbtest"
)

// TestSlowDeliveries checks that unsigned deliveries that announce large bodies and hardly send anything do not
// block deliveries to other apps, and those to the same app only until they are found to be slow.
func TestSlowDeliveries(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-all-the-hooks"
	var weighed atomic.Int64 // how often the memory of large bodies changed
	h := surfacetest.New(t, surfacetest.Options{Surface: surface.Options{OnLargeBodies: func(int64) { weighed.Add(1) }}}, newRoutes)
	for _, app := range []string{"one", "two", "quiet"} {
		h.CreateApp(t, app, "{llms: {demo: {provider: scripted}}, agents: {hooked: {llm: demo, trigger: {type: webhook, secret: "+secret+", response: {mode: async}}}}}")
	}
	for i := range 16 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(h.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /apps/%s/webhooks/hooked HTTP/1.1\r\nHost: localhost\r\nX-Webhook-Signature: sha256=%064x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			[]string{"one", "two"}[i%2], 0, 1<<20, strings.Repeat(" ", 70_000))
		if err != nil {
			t.Fatal(err)
		}
	}
	dbtest.WaitUntil(t, "the large deliveries have room", func() bool { return weighed.Load() >= 16 })
	body := `{"text": "` + strings.Repeat("x", 200_000) + `"}`
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	signature := "sha256=" + hex.EncodeToString(mac.Sum(nil))
	for _, app := range []string{"quiet", "one"} {
		resp, answer := h.Do(t, http.MethodPost, "/apps/"+app+"/webhooks/hooked", "", body, "X-Webhook-Signature", signature, "Content-Type", "application/json")
		if resp.StatusCode >= 300 {
			t.Errorf("a signed delivery to %s: %d %s", app, resp.StatusCode, answer)
		}
	}
}
