/*
 * durite.h: everything a program that uses Durite needs.
 */
#ifndef DURITE_H
#define DURITE_H

#include <durite/activity.h>
#include <durite/client.h>
#include <durite/error.h>
#include <durite/host.h>
#include <durite/log.h>
#include <durite/memory.h>
#include <durite/metrics.h>
#include <durite/orchestration.h>
#include <durite/provider.h>
#include <durite/registry.h>
#include <durite/replay.h>
#include <durite/runtime.h>
#include <durite/step.h>
#include <durite/version.h>

#endif
