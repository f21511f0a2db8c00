package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cachelab/app/fleet"
	"cachelab/app/fleet/meeting"
	"cachelab/app/redisstore"
)

// Joining is what a joiner knows before it is told.
type Joining struct {
	Run   string // its id; "" is the one that is open
	Redis redisstore.Target
	Wait  time.Duration // for the run to be open
	Stay  bool          // join one run after the other, and wait for them as long as it takes
}

// joiner is a process that takes part in runs that are coordinated elsewhere.
type joiner struct {
	Joining
	who   Who
	run   meeting.Run
	redis *redisstore.Redis // connections that are called after the run, if it is known: they are no strangers in it
	done  []string          // runs that it was in, or was not wanted in
}

// Join takes part in a run that a process elsewhere coordinates, until that lets it go. The end of ctx is the proper end of
// one that stays and is in no run.
func Join(ctx context.Context, joining Joining, who Who) (err error) {
	redisstore.DiscardClientLog()
	if joining.Redis.Auto {
		if err := redisstore.Probe(ctx, joining.Redis); err != nil {
			return fmt.Errorf("a joiner needs the run's Redis: give its address in --redis (%w)", err)
		}
	}
	j := &joiner{Joining: joining, who: who}
	defer func() {
		if j.redis != nil {
			err = errors.Join(err, j.redis.Close())
		}
	}()
	for {
		line, err := j.find(ctx)
		switch {
		case ctx.Err() != nil && j.Stay:
			return nil
		case err != nil:
			return err
		}
		j.who.Connections = j.redis.Dialled
		err = TakePart(ctx, line, j.who)
		if !j.Stay || ctx.Err() != nil {
			return err
		}
		if err != nil {
			j.who.Terminal.Warn(err.Error())
		}
		j.done = append(j.done, j.run.ID)
	}
}

// lookForDoor is how often an open run is looked for.
const lookForDoor = 500 * time.Millisecond

// find waits for a run to be open, and knocks.
func (j *joiner) find(ctx context.Context) (fleet.Line, error) {
	ended := time.After(j.Wait)
	if j.Stay {
		ended = nil
	}
	for told := false; ; told = true {
		line, err := j.knock(ctx)
		if line != nil || err != nil {
			return line, err
		}
		if !told {
			j.who.Terminal.Notice(j.notOpen(ctx) + "; waiting for it")
		}
		select {
		case <-time.After(lookForDoor):
		case <-ended:
			return nil, fmt.Errorf("%s, after %v: start its coordinator with --joiners N --run-id %s", j.notOpen(ctx), j.Wait, cmp.Or(j.Run, "ID"))
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// knock returns no line if the run is not open.
func (j *joiner) knock(ctx context.Context) (fleet.Line, error) {
	id := j.Run
	if id == "" {
		doors, err := j.doors(ctx)
		switch {
		case err != nil:
			return nil, err
		case len(doors) == 0:
			return nil, nil
		case len(doors) > 1 && !j.Stay:
			return nil, fmt.Errorf("which run? Open at %s are %s: cachelab join RUN", j.redis.Where(), strings.Join(doors, ", "))
		}
		id = doors[0]
	}
	if err := j.connect(ctx, id); err != nil {
		return nil, err
	}
	line, err := j.run.Join(ctx)
	switch {
	case errors.Is(err, meeting.ErrNotOpen):
		return nil, nil
	case err != nil:
		return nil, j.redis.Refused(ctx, fmt.Sprintf("XREAD and XADD to join run %s", id), err)
	}
	return line, nil
}

// doors are the runs that are open, and that it was not in.
func (j *joiner) doors(ctx context.Context) ([]string, error) {
	if j.redis == nil {
		if err := j.connect(ctx, ""); err != nil {
			return nil, err
		}
	}
	doors, err := j.run.Doors(ctx)
	if err != nil {
		return nil, j.redis.Refused(ctx, "SCAN for open runs", err)
	}
	return slices.DeleteFunc(doors, func(id string) bool { return slices.Contains(j.done, id) }), nil
}

// connect connects to Redis for a run, whose connections are told from those of strangers.
func (j *joiner) connect(ctx context.Context, id string) (err error) {
	name := "cachelab-" + id + "-joiner"
	switch {
	case id == "":
		name = "cachelab-joiner"
	case j.redis != nil && j.run.ID == id:
		return nil
	}
	if j.redis != nil {
		if err := j.redis.Close(); err != nil {
			return err
		}
		j.redis = nil
	}
	j.run, j.redis, err = openMeeting(ctx, j.Redis, id, name, meeting.Connections)
	if err == nil {
		j.who.Hello.Connections = j.redis.Dialled()
	}
	return err
}

// notOpen says that the run is not open, and which are.
func (j *joiner) notOpen(ctx context.Context) string {
	doors, err := j.doors(ctx)
	switch {
	case err != nil:
		return err.Error()
	case j.Run == "":
		return fmt.Sprintf("no run is open for joiners at %s", j.redis.Where())
	case len(doors) == 0:
		return fmt.Sprintf("run %s is not open for joiners at %s, and no other is", j.Run, j.redis.Where())
	}
	return fmt.Sprintf("run %s is not open for joiners at %s; open are: %s", j.Run, j.redis.Where(), strings.Join(doors, ", "))
}
