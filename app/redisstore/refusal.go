package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Refusal is a Redis that cannot be used: it was not reached, or refuses a command that the lab needs.
type Refusal struct {
	Tried  string // the command, as a person would write it
	Where  string // without user and password
	Words  string // the server's own, or the network's
	Advice string // what to do
	cause  error
}

// Error says what was tried, what came back, and what to do.
func (r *Refusal) Error() string {
	return fmt.Sprintf("tried %s at %s: %s; %s", r.Tried, r.Where, r.Words, r.Advice)
}

func (r *Refusal) Unwrap() error { return r.cause }

// refused makes a [*Refusal] of the error of a command, nil of nil. An error of ctx stays what it is. Every error of Redis
// that a person is to see before a run comes from here.
func (r *Redis) refused(ctx context.Context, tried string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", tried, context.Cause(ctx))
	}
	refusal := &Refusal{Tried: tried, Where: r.where, cause: err}
	refusal.Words, _, _ = strings.Cut(err.Error(), "\n")                       // many connections that fail alike say it many times
	refusal.Words, _, _ = strings.Cut(refusal.Words, " (possibly because of ") // a guess of crypto/x509
	if slow := net.Error(nil); errors.As(err, &slow) && slow.Timeout() {
		refusal.Words = fmt.Sprintf("no answer within %v", commandTimeout)
	}
	if answer := redis.Error(nil); !errors.As(err, &answer) {
		if heard := listen(ctx, r.options.Target.options); heard != "" {
			refusal.Words = heard
		}
	}
	for _, c := range causes {
		if m := c.words.FindStringSubmatch(refusal.Words); m != nil {
			refusal.Advice = strings.ReplaceAll(c.advice, "$1", m[len(m)-1])
			break
		}
	}
	refusal.Advice = r.options.Target.access.named(refusal.Advice)
	if strings.Contains(refusal.Words, "syntax error") {
		refusal.Advice = r.tooOld(ctx, tried)
	}
	if strings.HasPrefix(refusal.Words, "WRONGTYPE") {
		return errors.New(refusal.Error()) // the key is somebody else's, and Redis is all right
	}
	return refusal
}

// causes are the words of servers of all versions, and what to do about each. The first that fits counts.
var causes = []struct {
	words  *regexp.Regexp
	advice string
}{
	{regexp.MustCompile(`NOAUTH|WRONGPASS|invalid password`), "give user and password: --redis redis://user:password@host:port, or the password in --redis-password-file FILE"},
	{regexp.MustCompile(`NOPERM.*'([\w|]+)' command`), "grant it (ACL SETUSER NAME +$1), give another user in --redis, or use --redis embedded"},
	{regexp.MustCompile(`executing the script can't run`), "the user needs in a script what it needs outside: grant +get and +del (ACL SETUSER NAME +get +del)"},
	{regexp.MustCompile(`NOPERM.*channel`), "grant the channel, which has the fill lock's name (ACL SETUSER NAME &KEY:filling)"},
	{regexp.MustCompile(`NOPERM.*key`), "grant the key and its fill lock (ACL SETUSER NAME ~KEY ~KEY:filling), or choose another --key"},
	{regexp.MustCompile(`NOPERM`), "grant it (ACL SETUSER), give another user in --redis, or use --redis embedded"},
	{regexp.MustCompile(`^OOM `), "the server's memory is full: make room, raise maxmemory, or use --redis embedded"},
	{regexp.MustCompile(`^READONLY`), "this is a replica: give its master in --redis"},
	{regexp.MustCompile(`^MASTERDOWN`), "this is a replica without its master: give the master in --redis"},
	{regexp.MustCompile(`^NOREPLICAS`), "the server wants more replicas before it writes: start them, or lower min-replicas-to-write"},
	{regexp.MustCompile(`^MISCONF`), "the server cannot save to disk and so refuses to write: mend that (its log says why), or CONFIG SET stop-writes-on-bgsave-error no"},
	{regexp.MustCompile(`^LOADING`), "the server is still reading its data: wait and try again, or use --redis embedded"},
	{regexp.MustCompile(`^BUSY`), "a script keeps the server busy: wait, or SCRIPT KILL, and try again"},
	{regexp.MustCompile(`^CLUSTERDOWN`), "no node of the cluster serves the key's slot: CLUSTER INFO and CLUSTER SLOTS say what is missing; start that node, give its slots to another, or use --redis embedded"},
	{regexp.MustCompile(`^(MOVED|ASK|CROSSSLOT|TRYAGAIN)`), "this is a node of a Redis Cluster that does not say so: grant +hello (ACL SETUSER NAME +hello), or use --redis embedded"},
	{regexp.MustCompile(`the sentinel knows no master$`), "tell it of one (SENTINEL MONITOR), or give the Redis itself in --redis"},
	{regexp.MustCompile(`the sentinel knows `), "choose one: append ?master_name=NAME to --redis"},
	{regexp.MustCompile(`^WRONGTYPE`), "what is there is not the lab's: delete it, choose another --key, or use --redis embedded"},
	{regexp.MustCompile(`max number of clients|max number of open files`), "the server takes no more connections: raise its maxclients, close some, or give fewer --workers"},
	{regexp.MustCompile(`^DENIED`), "the server answers its own machine only: set a password there, or protected-mode no"},
	{regexp.MustCompile(`DB index is out of range|SELECT is not allowed`), "the server has no such database: give a smaller number at the end of --redis"},
	{regexp.MustCompile(`unknown command`), "is that a sentinel, or something that is no Redis? Give a Redis 7.0 or newer in --redis, or use --redis embedded"},
	{regexp.MustCompile(`speaks TLS`), "write rediss:// instead of redis://"},
	{regexp.MustCompile(`speaks plain text`), "write redis:// instead of rediss://"},
	{regexp.MustCompile(`x509: certificate signed by unknown authority|not trusted`), "give the certificate of the authority that signed it: --redis-ca FILE, or append ?skip_verify=true to --redis and trust whoever answers"},
	{regexp.MustCompile(`x509: certificate has expired`), "renew the server's certificate, or set the clock of this machine"},
	{regexp.MustCompile(`x509:`), "give the host that the certificate names, or that name in --redis-sni NAME"},
	{regexp.MustCompile(`certificate required`), "the server wants a client certificate: --redis-cert FILE and --redis-key FILE"},
	{regexp.MustCompile(`remote error: tls: .*(certificate|authority)`), "the server does not accept the client certificate: give one that an authority signed which the server knows: --redis-cert FILE"},
	{regexp.MustCompile(`remote error: tls: (handshake failure|protocol version)`), "the server may want a client certificate (--redis-cert, --redis-key), or allow neither TLS 1.2 nor 1.3"},
	{regexp.MustCompile(`can't parse|HTTP`), "that is no Redis: correct --redis, or use --redis embedded"},
	{regexp.MustCompile(``), "start it, correct --redis, or use --redis embedded"},
}

// tooOld explains a syntax error: the lab's SETs are younger than SET.
func (r *Redis) tooOld(ctx context.Context, tried string) string {
	needs := "7.0" // SET with NX and GET
	if !strings.Contains(tried, "NX") {
		needs = "6.2" // SET with GET
	}
	advice := fmt.Sprintf("the lab needs Redis %s or newer", needs)
	if version := r.version(ctx); version != "" {
		advice = fmt.Sprintf("the lab needs Redis %s, this is %s", needs, version)
	}
	return advice + ": give a newer one in --redis, or use --redis embedded"
}

var versionLine = regexp.MustCompile(`(?m)^redis_version:(\S+)`)

// version is what the server says that it is, "" if it does not. INFO may be refused.
func (r *Redis) version(ctx context.Context) string {
	if info, err := r.keeper.Info(ctx, "server").Result(); err == nil {
		if m := versionLine.FindStringSubmatch(info); m != nil {
			return m[1]
		}
	}
	return hello(ctx, r.keeper)["version"]
}

// listenTimeout bounds the wait for what a server has to say.
const listenTimeout = 300 * time.Millisecond

// listen hears a server out that hung up or kept silent. The client library keeps to itself what a server answers to its
// first command, as one does that is full; and of a port of the other kind, plain or TLS, it knows nothing. It returns
// "" if nothing more can be said.
func listen(ctx context.Context, o *redis.Options) string {
	ctx, cancel := context.WithTimeout(ctx, 2*listenTimeout)
	defer cancel()
	heard := ask(ctx, o)
	switch {
	case strings.HasPrefix(heard, "-"):
		return heard[1:]
	case strings.HasPrefix(heard, "HTTP"):
		return "answered " + heard
	case heard != "" && o.TLSConfig != nil:
		return "the port speaks plain text"
	case heard != "": // it was a moment's trouble
		return ""
	case o.TLSConfig == nil && speaksTLS(ctx, o):
		return "the port speaks TLS"
	}
	return ""
}

// ask sends PING in plain text, and returns the first line of the answer.
func ask(ctx context.Context, o *redis.Options) string {
	conn, err := (&net.Dialer{}).DialContext(ctx, o.Network, o.Addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(listenTimeout)) // without one, Read returns when the server hangs up
	_, _ = conn.Write([]byte("PING\r\n"))               // a server may have said all and hung up already
	answer := make([]byte, 512)
	n, _ := conn.Read(answer)
	line, _, _ := strings.Cut(string(answer[:n]), "\r\n")
	if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "" // an alert of TLS
	}
	return line
}

func speaksTLS(ctx context.Context, o *redis.Options) bool {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // nothing is told to it
	conn, err := dialer.DialContext(ctx, o.Network, o.Addr)
	if err != nil {
		return strings.Contains(err.Error(), "remote error: tls:") // it speaks TLS and wants something more
	}
	_ = conn.Close() // it may have hung up
	return true
}
