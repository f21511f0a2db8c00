package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"cachelab/app/fleet"
	"cachelab/app/fleet/meeting"
	"cachelab/app/herd"
	"cachelab/app/redisstore"
)

// joiners are where processes from elsewhere come to the run that this process coordinates. Nil is a run without.
type joiners struct {
	*processes
	redis    *redisstore.Redis // the meeting's own
	told     int               // connections of it that were told
	door     *meeting.Door
	places   chan int // numbers of processes that are not there yet
	arrived  chan *remote
	stop     context.CancelCauseFunc // refuse, and accept nobody any more
	arriving sync.WaitGroup
}

// openDoor opens the run for joiners.
func (p *processes) openDoor(ctx context.Context, sessions []*session) (*joiners, error) {
	if p.embedded != nil {
		return nil, errors.New("joiners need a Redis that they can reach, and this run's is embedded in its own process: give --redis URL")
	}
	n, id := p.config.Joiners, sessions[0].id
	j := &joiners{processes: p, places: make(chan int, n), arrived: make(chan *remote, n)}
	for i := range n {
		j.places <- p.config.Processes + i + 1
	}
	run, redis, err := openMeeting(ctx, p.config.Redis, id, "cachelab-"+id+"-meeting", meeting.Connections+n)
	if err != nil {
		return nil, err
	}
	j.redis, j.told = redis, redis.Dialled()
	if j.door, err = run.Open(ctx, n); err != nil {
		return nil, errors.Join(fmt.Errorf("open run %s for joiners: %w", id, redis.Refused(ctx, "XADD, XREAD and EXPIRE", err)), redis.Close())
	}
	ctx, j.stop = context.WithCancelCause(ctx)
	j.arriving.Go(func() { j.acceptAll(ctx, sessions) })
	return j, nil
}

// openMeeting opens a Redis for the streams of a run, by connections of that name.
func openMeeting(ctx context.Context, target redisstore.Target, id, name string, connections int) (meeting.Run, *redisstore.Redis, error) {
	run := meeting.Run{ID: id}
	redis, err := redisstore.Open(ctx, redisstore.Options{Target: target, Workers: connections, Name: name, Keys: run.Keys()})
	if err != nil {
		return run, nil, err
	}
	run.Redis, run.Masters = redis.Client(), redis.Masters
	return run, redis, nil
}

// await returns the joiners when all are ready.
func (j *joiners) await(ctx context.Context, id string) (all []*remote, err error) {
	n, wait := j.config.Joiners, j.config.JoinWait
	j.terminal.Notice(fmt.Sprintf("waiting up to %v for %s: cachelab join %s --redis URL", wait, herd.Count(n, "joiner"), id))
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for len(all) < n {
		select {
		case r := <-j.arrived:
			all = append(all, r)
			j.terminal.Notice(fmt.Sprintf("%v has joined: %d of %d", r, len(all), n))
		case <-limit.C:
			return all, fmt.Errorf("%s of %d came within %v: start them sooner, give a longer --join-wait, or fewer --joiners", herd.Count(len(all), "joiner"), n, wait)
		case <-ctx.Done():
			return all, context.Cause(ctx)
		}
	}
	slices.SortFunc(all, func(a, b *remote) int { return a.Number - b.Number })
	return all, nil
}

// acceptAll hears everybody who comes, until ctx ends.
func (j *joiners) acceptAll(ctx context.Context, sessions []*session) {
	for {
		line, err := j.door.Accept(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			j.terminal.Warn(fmt.Sprintf("nobody can join any more: %v", err))
			return
		}
		j.arriving.Go(func() { j.accept(ctx, line, sessions) })
	}
}

// accept takes in one who comes, if there is a place, or refuses it.
func (j *joiners) accept(ctx context.Context, line fleet.Line, sessions []*session) {
	number := 0
	select {
	case number = <-j.places:
	default:
	}
	r, err := j.admit(ctx, line, seat{number: number, elsewhere: true, refuse: func(hello fleet.Hello) string {
		why := j.config.Differs(hello.Settings)
		if number == 0 {
			why = fmt.Sprintf("the run has %s, and all are there", herd.Count(j.config.Joiners, "joiner"))
		}
		if why != "" {
			for _, s := range sessions {
				s.redis.Joined(hello.Connections)
			}
		}
		return why
	}}, sessions)
	if err != nil && number > 0 {
		j.places <- number
	}
	switch {
	case err == nil:
		j.arrived <- r
	case ctx.Err() == nil:
		j.terminal.Warn(fmt.Sprintf("a joiner did not join: %v", err))
	}
}

// connected tells the sessions how many connections the meeting has made since it was last asked.
func (j *joiners) connected(sessions ...*session) {
	if j == nil {
		return
	}
	more := j.redis.Dialled() - j.told
	j.told += more
	for _, s := range sessions {
		s.redis.Joined(more)
	}
}

// close refuses those who are just coming, and closes the door.
func (j *joiners) close() error {
	if j == nil {
		return nil
	}
	j.stop(errors.New("the run is over"))
	j.arriving.Wait()
	for {
		select {
		case r := <-j.arrived: // nobody waited for it any more
			_ = r.Close()
		default:
			return errors.Join(j.door.Close(), j.redis.Close())
		}
	}
}
