package mutation

import (
	"encoding/json"
	"net/http"
	"strconv"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy"
)

// revisionBody is a stored configuration.
type revisionBody struct {
	Revision int64 `json:"revision"`
	// Actor made the change that created the revision.
	Actor     string  `json:"actor"`
	CreatedAt *string `json:"created_at"`
	// Current marks the revision that new turns run with.
	Current bool `json:"current"`
	// Config is only in answers about one revision; its secrets are masked.
	Config json.RawMessage `json:"config,omitempty"`
}

func newRevisionBody(v tenancy.Revision) revisionBody {
	return revisionBody{Revision: v.Number, Actor: v.Actor, CreatedAt: encode.FormatOptionalTime(v.CreatedAt), Current: v.Current}
}

// ParseRevision returns the number of the path parameter revision.
func ParseRevision(r *http.Request) (int64, error) {
	n, err := strconv.ParseInt(surface.PathParam(r, "revision"), 10, 64)
	if err != nil {
		return 0, agentsvc.NewInvalidError("revision", "must be the number of a revision")
	}
	return n, nil
}

// WriteRevision answers with a revision of an app whose configuration is that of the revision, see [WriteConfig].
func WriteRevision(w http.ResponseWriter, r *http.Request, v tenancy.Revision, stored tenancy.App) error {
	tag := "r" + strconv.FormatInt(v.Number, 10)
	if v.Current {
		tag += "-current"
	}
	return WriteConfig(w, r, tag, stored.Config.Text, func() error {
		body := newRevisionBody(v)
		body.Config = stored.Config.JSON
		return response.WriteJSON(w, http.StatusOK, body)
	})
}

// WriteRevisions answers with stored revisions, without their configurations.
func WriteRevisions(w http.ResponseWriter, revisions []tenancy.Revision) error {
	out := make([]revisionBody, len(revisions))
	for i, v := range revisions {
		out[i] = newRevisionBody(v)
	}
	return response.WriteJSON(w, http.StatusOK, map[string]any{"revisions": out})
}
