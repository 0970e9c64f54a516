package llm

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// Files says which files the models of a provider take.
type Files struct {
	// URIs are the schemes of the addresses that the provider fetches for its models; without any, files are sent by
	// value alone.
	URIs []string
	// Max is the size of a file that is sent by value, in bytes.
	Max int64
	// Media are the media types.
	Media []string
	// Untyped says that an address needs no media type.
	Untyped bool
}

const mebibyte = 1 << 20

var (
	images = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}
	videos = []string{"video/mp4", "video/avi", "video/mov"}
	sounds = []string{"audio/wav", "audio/mp3"}
)

// files is what each provider takes.
var files = map[string]Files{
	"openai":    {URIs: []string{"http", "https"}, Max: 20 * mebibyte, Media: images, Untyped: true},
	"anthropic": {Max: 5 * mebibyte, Media: images},
	"gemini":    {URIs: []string{"gs", "http", "https"}, Max: 20 * mebibyte, Media: slices.Concat(images, videos, sounds)},
	"ollama":    {Max: 20 * mebibyte, Media: images},
}

// FilesOf returns what the models of a provider take: no files at all where it is unknown.
func FilesOf(provider string) Files { return files[provider] }

// synonyms are other names of media types.
var synonyms = map[string]string{
	"image/jpg": "image/jpeg", "video/quicktime": "video/mov", "video/x-msvideo": "video/avi",
	"audio/mpeg": "audio/mp3", "audio/x-wav": "audio/wav", "audio/wave": "audio/wav",
}

// MediaType returns a media type as the tables of providers name it: in lower case, without parameters.
func MediaType(name string) string {
	name, _, _ = strings.Cut(name, ";")
	name = strings.ToLower(strings.TrimSpace(name))
	if usual := synonyms[name]; usual != "" {
		return usual
	}
	return name
}

// Check returns an [agentsvc.InvalidError] that names the first file of the users' messages which the models do not
// take, and says what they do.
func (f Files) Check(conversation []agentsvc.Entry) error {
	for _, e := range conversation {
		if e.Message == nil || e.Message.Role == agentsvc.RoleAgent {
			continue
		}
		for _, part := range e.Message.Parts {
			if part.File == nil {
				continue
			}
			if err := f.check(*part.File); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f Files) check(file agentsvc.File) error {
	refuse := func(format string, args ...any) error {
		return agentsvc.Invalid(fmt.Sprintf("file %q", file.Name), format, args...)
	}
	media := MediaType(file.MediaType)
	switch {
	case len(f.Media) == 0:
		return refuse("this model takes no files")
	case media == "" && !(f.Untyped && file.URI != ""):
		return refuse("needs a media type; this model takes %s", strings.Join(f.Media, ", "))
	case media != "" && !slices.Contains(f.Media, media):
		return refuse("is %q; this model takes %s", file.MediaType, strings.Join(f.Media, ", "))
	case file.URI == "" && int64(len(file.Bytes)) > f.Max:
		return refuse("is larger than the %d MB this model takes", f.Max/mebibyte)
	case file.URI == "" && len(file.Bytes) == 0:
		return refuse("is empty")
	case file.URI == "":
		return nil
	case len(f.URIs) == 0:
		return refuse("is an address; this model takes files by value only, as base64")
	}
	if u, err := url.Parse(file.URI); err != nil || !slices.Contains(f.URIs, u.Scheme) || u.Host == "" {
		return refuse("only %s addresses can be sent to this model", strings.Join(f.URIs, ", "))
	}
	return nil
}
