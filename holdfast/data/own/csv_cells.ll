; Made by numba 0.68.1 and llvmlite 0.50.0
; of csv_cells.py with SHA-256 1a6f3cfbc1a75c11116a17652f633dd497fce3eb2db733b0b84ddcf42ed0e45c
; ModuleID = '<string>'
source_filename = "<string>"

; Function Attrs: nofree norecurse nosync nounwind memory(argmem: readwrite)
define range(i32 -1, -2) i32 @read_cells(ptr noalias writeonly captures(none) %retptr, ptr noalias writeonly captures(none) %excinfo, ptr readonly captures(none) %arg.text, i64 %arg.end, i8 %arg.separator, i8 %arg.point, i64 %arg.columns, ptr readonly captures(none) %arg.kinds, i64 %arg.room, ptr writeonly captures(none) %arg.numbers, ptr writeonly captures(none) %arg.wholes, ptr writeonly captures(none) %arg.codes, ptr captures(none) %arg.slots, ptr captures(none) %arg.hashes, ptr captures(none) %arg.starts, ptr captures(none) %arg.lengths, ptr writeonly captures(none) %arg.rows, ptr captures(none) %arg.counts, ptr readonly captures(none) %arg.tens, ptr readonly captures(none) %arg.fives) local_unnamed_addr #0 {
B0:
  %.364 = alloca i64, align 8
  %excinfo.1 = alloca ptr, align 8
  store ptr null, ptr %excinfo.1, align 8
  %.435 = alloca i64, align 8
  %excinfo.2 = alloca ptr, align 8
  %.550 = alloca i64, align 8
  %excinfo.3 = alloca ptr, align 8
  %.80 = icmp sgt i64 %arg.end, 0
  br i1 %.80, label %B28.preheader, label %B1202

B28.preheader:                                    ; preds = %B0
  %arg.columns.fr = freeze i64 %arg.columns
  %.278359 = icmp sgt i64 %arg.columns.fr, 0
  %.805277 = shl i64 %arg.room, 1
  %.881 = add nsw i64 %arg.columns.fr, -1
  br i1 %.278359, label %B28.us.preheader, label %B28.preheader447

B28.us.preheader:                                 ; preds = %B28.preheader
  br label %B28.us

B28.preheader447:                                 ; preds = %B28.preheader
  %.89.peel = icmp eq i64 %arg.room, 0
  br i1 %.89.peel, label %B40, label %B44.peel

B44.peel:                                         ; preds = %B28.preheader447
  %.136.peel = load i8, ptr %arg.text, align 1
  %0 = zext i8 %.136.peel to i32
  switch i32 %0, label %B1164 [
    i32 10, label %B112
    i32 13, label %B112
  ]

B28.us:                                           ; preds = %B1168.us, %B28.us.preheader
  %at.6.0.us = phi i64 [ %.1029.us, %B1168.us ], [ 0, %B28.us.preheader ]
  %row.2.0.us = phi i64 [ %.1035.us, %B1168.us ], [ 0, %B28.us.preheader ]
  %.89.us = icmp eq i64 %row.2.0.us, %arg.room
  br i1 %.89.us, label %B40, label %B44.us

B44.us:                                           ; preds = %B28.us
  %.135.us = getelementptr i8, ptr %arg.text, i64 %at.6.0.us
  %.136.us = load i8, ptr %.135.us, align 1
  %1 = zext i8 %.136.us to i32
  switch i32 %1, label %B116.endif.us [
    i32 10, label %B112
    i32 13, label %B112
  ]

B116.endif.us:                                    ; preds = %B44.us
  %invariant.gep.us = getelementptr i32, ptr %arg.codes, i64 %row.2.0.us
  %.851.us = trunc i64 %row.2.0.us to i32
  br label %B150.us

B1168.us:                                         ; preds = %B148.B1086_crit_edge.us
  %.1029.us = add nuw nsw i64 %spec.select.us, 1
  %.1035.us = add nuw nsw i64 %row.2.0.us, 1
  %.1041.us = icmp slt i64 %.1029.us, %arg.end
  br i1 %.1041.us, label %B28.us, label %B1202

B150.us:                                          ; preds = %B1082.us, %B116.endif.us
  %at.7.1362.us = phi i64 [ %at.6.0.us, %B116.endif.us ], [ %at.8.2.us, %B1082.us ]
  %.284351360.us = phi i64 [ 0, %B116.endif.us ], [ %.291.us, %B1082.us ]
  %.291.us = add nuw nsw i64 %.284351360.us, 1
  %.321.us = mul nsw i64 %.284351360.us, %arg.room
  %.323.us = add nsw i64 %.321.us, %row.2.0.us
  %.333.us = getelementptr i64, ptr %arg.kinds, i64 %.284351360.us
  %.334.us = load i64, ptr %.333.us, align 8
  %switch.us = icmp ult i64 %.334.us, 2
  br i1 %switch.us, label %B232.us, label %B320.us

B320.us:                                          ; preds = %B150.us
  %.415.us = icmp sgt i64 %.334.us, 1
  br i1 %.415.us, label %B356.us, label %B1024.us

B232.us:                                          ; preds = %B150.us
  %.354.us = icmp eq i64 %.334.us, 1
  store i64 0, ptr %.364, align 8
  %.368.us = zext i1 %.354.us to i8
  %.369.us = call i32 @_ZN8__main__7_numberB3v15B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2axhhbx10float64_2a8int64_2a10float64_2a9uint64_2a(ptr nonnull %.364, ptr nonnull %excinfo.1, ptr %arg.text, i64 %at.7.1362.us, i8 %arg.separator, i8 %arg.point, i8 %.368.us, i64 %.323.us, ptr %arg.numbers, ptr %arg.wholes, ptr %arg.tens, ptr %arg.fives)
  %cond = icmp eq i32 %.369.us, 0
  br i1 %cond, label %B232.endif.us, label %B232.if.if, !prof !0

B232.endif.us:                                    ; preds = %B232.us
  %.379.us = load i64, ptr %.364, align 8
  %.396.us = icmp slt i64 %.379.us, 0
  br i1 %.396.us, label %B342.thread.us, label %B1024.us

B342.thread.us:                                   ; preds = %B232.endif.us
  %.405.us = getelementptr i64, ptr %arg.wholes, i64 %.323.us
  store i64 0, ptr %.405.us, align 8
  br label %B356.us

B356.us:                                          ; preds = %B342.thread.us, %B320.us
  store i64 0, ptr %.435, align 8
  %.439.us = call i32 @_ZN8__main__12_end_of_cellB3v16B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2axxh(ptr nonnull %.435, ptr nonnull %excinfo.2, ptr %arg.text, i64 %at.7.1362.us, i64 %arg.end, i8 %arg.separator)
  %.449.us = load i64, ptr %.435, align 8
  %cond22 = icmp eq i32 %.439.us, 0
  br i1 %cond22, label %B356.endif.us, label %B356.if.if, !prof !0

B356.endif.us:                                    ; preds = %B356.us
  %.463.us = icmp slt i64 %.449.us, 0
  br i1 %.463.us, label %B404, label %B410.us

B410.us:                                          ; preds = %B356.endif.us
  %.517.us = sub nsw i64 %.449.us, %at.7.1362.us
  %.517.us.fr = freeze i64 %.517.us
  %.526.us = getelementptr i64, ptr %arg.counts, i64 %.284351360.us
  %.527.us = load i64, ptr %.526.us, align 8
  %.528.us = add nsw i64 %.527.us, %.321.us
  %.540.us = icmp eq i64 %.334.us, 2
  br i1 %.540.us, label %B474.us, label %B962.us

B474.us:                                          ; preds = %B410.us
  store i64 0, ptr %.550, align 8
  %.554.us = call i32 @_ZN8__main__5_hashB3v17B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2axx(ptr nonnull %.550, ptr nonnull %excinfo.3, ptr %arg.text, i64 %at.7.1362.us, i64 %.517.us.fr)
  %.564.us = load i64, ptr %.550, align 8
  %cond23 = icmp eq i32 %.554.us, 0
  br i1 %cond23, label %B474.endif.us, label %B474.if.if, !prof !0

B474.endif.us:                                    ; preds = %B474.us
  %.578.us = lshr i64 %.564.us, 52
  %.idx.us = shl i64 %.284351360.us, 14
  %2 = getelementptr i8, ptr %arg.slots, i64 %.idx.us
  %.588332.us = getelementptr i32, ptr %2, i64 %.578.us
  %.589333.us = load i32, ptr %.588332.us, align 4
  %.595334.us = icmp slt i32 %.589333.us, 0
  br i1 %.595334.us, label %B622.us, label %B744.lr.ph.us

B744.us383:                                       ; preds = %B744.us383.preheader, %B896.us397
  %.589336.us384 = phi i32 [ %.589.us401, %B896.us397 ], [ %.589333.us, %B744.us383.preheader ]
  %slot.2.4335.us385 = phi i64 [ %.795.us399, %B896.us397 ], [ %.578.us, %B744.us383.preheader ]
  %.594.us386 = zext nneg i32 %.589336.us384 to i64
  %.701.us387 = add nsw i64 %.321.us, %.594.us386
  %.711.us388 = getelementptr i64, ptr %4, i64 %.594.us386
  %.712.us389 = load i64, ptr %.711.us388, align 8
  %.714.us390 = icmp eq i64 %.712.us389, %.564.us
  br i1 %.714.us390, label %B806.us391, label %B896.us397

B806.us391:                                       ; preds = %B744.us383
  %.718.us392 = getelementptr i32, ptr %arg.lengths, i64 %.701.us387
  %.719.us393 = load i32, ptr %.718.us392, align 4
  %.721.us394 = sext i32 %.719.us393 to i64
  %.722.us395 = icmp eq i64 %.517.us.fr, %.721.us394
  br i1 %.722.us395, label %B830.us396, label %B896.us397

B830.us396:                                       ; preds = %B806.us391
  %.730.us = getelementptr i32, ptr %arg.starts, i64 %.701.us387
  %.731.us = load i32, ptr %.730.us, align 4
  %.134.i = sext i32 %.731.us to i64
  %invariant.gep.i = getelementptr i8, ptr %arg.text, i64 %.134.i
  br label %B34.i

B34.i:                                            ; preds = %B36.i, %B830.us396
  %.10151.i = phi i64 [ %.108.i, %B36.i ], [ 0, %B830.us396 ]
  %exitcond.not.i = icmp eq i64 %.517.us.fr, %.10151.i
  br i1 %exitcond.not.i, label %B958.thread273.us, label %B36.i

B36.i:                                            ; preds = %B34.i
  %.108.i = add nuw i64 %.10151.i, 1
  %gep.i = getelementptr i8, ptr %invariant.gep.i, i64 %.10151.i
  %.138.i = load i8, ptr %gep.i, align 1, !noalias !1
  %.142.i = getelementptr i8, ptr %5, i64 %.10151.i
  %.143.i = load i8, ptr %.142.i, align 1, !noalias !1
  %.144.not.i = icmp eq i8 %.138.i, %.143.i
  br i1 %.144.not.i, label %B34.i, label %B896.us397

B896.us397:                                       ; preds = %B36.i, %B806.us391, %B744.us383
  %.793.us398 = add nuw nsw i64 %slot.2.4335.us385, 1
  %.795.us399 = and i64 %.793.us398, 4095
  %.588.us400 = getelementptr i32, ptr %2, i64 %.795.us399
  %.589.us401 = load i32, ptr %.588.us400, align 4
  %.595.us402 = icmp slt i32 %.589.us401, 0
  br i1 %.595.us402, label %B622.us, label %B744.us383

B958.thread273.us:                                ; preds = %B806.us.us, %B34.i
  %.589301.us = phi i32 [ %.589336.us384, %B34.i ], [ %.589336.us.us, %B806.us.us ]
  %.807278.us = mul i64 %.284351360.us, %.805277
  %gep.us = getelementptr i32, ptr %invariant.gep.us, i64 %.807278.us
  store i32 %.589301.us, ptr %gep.us, align 4
  br label %B1024.us

B622.us:                                          ; preds = %B896.us.us, %B896.us397, %B474.endif.us
  %slot.2.4.lcssa.us = phi i64 [ %.578.us, %B474.endif.us ], [ %.795.us.us, %B896.us.us ], [ %.795.us399, %B896.us397 ]
  %.603.us = icmp eq i64 %.527.us, 2048
  br i1 %.603.us, label %B656, label %B958.us

B958.us:                                          ; preds = %B622.us
  %.588.le.us = getelementptr i32, ptr %2, i64 %slot.2.4.lcssa.us
  %.683.us = trunc i64 %.527.us to i32
  store i32 %.683.us, ptr %.588.le.us, align 4
  %3 = getelementptr i8, ptr %arg.hashes, i64 %.idx.us
  %.691.us = getelementptr i64, ptr %3, i64 %.527.us
  store i64 %.564.us, ptr %.691.us, align 8
  %.807.us = mul i64 %.284351360.us, %.805277
  %gep342.us = getelementptr i32, ptr %invariant.gep.us, i64 %.807.us
  store i32 %.683.us, ptr %gep342.us, align 4
  br label %B962.us

B962.us:                                          ; preds = %B958.us, %B410.us
  %.835.us = trunc i64 %at.7.1362.us to i32
  %.836.us = getelementptr i32, ptr %arg.starts, i64 %.528.us
  store i32 %.835.us, ptr %.836.us, align 4
  %.843.us = trunc i64 %.517.us.fr to i32
  %.844.us = getelementptr i32, ptr %arg.lengths, i64 %.528.us
  store i32 %.843.us, ptr %.844.us, align 4
  %.852.us = getelementptr i32, ptr %arg.rows, i64 %.528.us
  store i32 %.851.us, ptr %.852.us, align 4
  %sunkaddr = mul i64 %.284351360.us, 8
  %sunkaddr72 = getelementptr i8, ptr %arg.counts, i64 %sunkaddr
  %.859.us = load i64, ptr %sunkaddr72, align 8
  %.860.us = add nsw i64 %.859.us, 1
  store i64 %.860.us, ptr %sunkaddr72, align 8
  br label %B1024.us

B1024.us:                                         ; preds = %B962.us, %B958.thread273.us, %B232.endif.us, %B320.us
  %at.9.3.us = phi i64 [ %.449.us, %B962.us ], [ %.449.us, %B958.thread273.us ], [ %at.7.1362.us, %B320.us ], [ %.379.us, %B232.endif.us ]
  %.883.us = icmp slt i64 %.284351360.us, %.881
  br i1 %.883.us, label %B1042.us, label %B1082.us

B1042.us:                                         ; preds = %B1024.us
  %.891.us = getelementptr i8, ptr %arg.text, i64 %at.9.3.us
  %.892.us = load i8, ptr %.891.us, align 1
  %.894.not.us = icmp eq i8 %.892.us, %arg.separator
  br i1 %.894.not.us, label %B1072.us, label %B1066

B1072.us:                                         ; preds = %B1042.us
  %.941.us = add nuw nsw i64 %at.9.3.us, 1
  br label %B1082.us

B1082.us:                                         ; preds = %B1072.us, %B1024.us
  %at.8.2.us = phi i64 [ %.941.us, %B1072.us ], [ %at.9.3.us, %B1024.us ]
  %exitcond.not = icmp eq i64 %arg.columns.fr, %.291.us
  br i1 %exitcond.not, label %B148.B1086_crit_edge.us, label %B150.us

B744.lr.ph.us:                                    ; preds = %B474.endif.us
  %4 = getelementptr i8, ptr %arg.hashes, i64 %.idx.us
  %.725.us = icmp slt i64 %.517.us.fr, 9
  br i1 %.725.us, label %B744.us.us.preheader, label %B744.us383.preheader

B744.us383.preheader:                             ; preds = %B744.lr.ph.us
  %5 = getelementptr i8, ptr %arg.text, i64 %at.7.1362.us
  br label %B744.us383

B744.us.us.preheader:                             ; preds = %B744.lr.ph.us
  %6 = getelementptr i32, ptr %arg.lengths, i64 %.321.us
  br label %B744.us.us

B744.us.us:                                       ; preds = %B896.us.us, %B744.us.us.preheader
  %.589336.us.us = phi i32 [ %.589.us.us, %B896.us.us ], [ %.589333.us, %B744.us.us.preheader ]
  %slot.2.4335.us.us = phi i64 [ %.795.us.us, %B896.us.us ], [ %.578.us, %B744.us.us.preheader ]
  %.594.us.us = zext nneg i32 %.589336.us.us to i64
  %.711.us.us = getelementptr i64, ptr %4, i64 %.594.us.us
  %.712.us.us = load i64, ptr %.711.us.us, align 8
  %.714.us.us = icmp eq i64 %.712.us.us, %.564.us
  br i1 %.714.us.us, label %B806.us.us, label %B896.us.us

B806.us.us:                                       ; preds = %B744.us.us
  %.718.us.us = getelementptr i32, ptr %6, i64 %.594.us.us
  %.719.us.us = load i32, ptr %.718.us.us, align 4
  %.721.us.us = sext i32 %.719.us.us to i64
  %.722.us.us = icmp eq i64 %.517.us.fr, %.721.us.us
  br i1 %.722.us.us, label %B958.thread273.us, label %B896.us.us

B896.us.us:                                       ; preds = %B806.us.us, %B744.us.us
  %.793.us.us = add nuw nsw i64 %slot.2.4335.us.us, 1
  %.795.us.us = and i64 %.793.us.us, 4095
  %.588.us.us = getelementptr i32, ptr %2, i64 %.795.us.us
  %.589.us.us = load i32, ptr %.588.us.us, align 4
  %.595.us.us = icmp slt i32 %.589.us.us, 0
  br i1 %.595.us.us, label %B622.us, label %B744.us.us

B148.B1086_crit_edge.us:                          ; preds = %B1082.us
  %.965.us = getelementptr i8, ptr %arg.text, i64 %at.8.2.us
  %.966.us = load i8, ptr %.965.us, align 1
  %.968.us = icmp eq i8 %.966.us, 13
  %.971.us = zext i1 %.968.us to i64
  %spec.select.us = add nuw nsw i64 %at.8.2.us, %.971.us
  %.981.us = getelementptr i8, ptr %arg.text, i64 %spec.select.us
  %.982.us = load i8, ptr %.981.us, align 1
  %.984.not.us = icmp eq i8 %.982.us, 10
  br i1 %.984.not.us, label %B1168.us, label %B1164

common.ret:                                       ; preds = %B474.if.if, %B356.if.if, %B232.if.if, %B1202, %B1164, %B1066, %B656, %B404, %B112, %B40
  %common.ret.op = phi i32 [ 0, %B40 ], [ 0, %B112 ], [ 0, %B404 ], [ 0, %B656 ], [ 0, %B1066 ], [ 0, %B1164 ], [ 0, %B1202 ], [ %.369.us, %B232.if.if ], [ %.439.us, %B356.if.if ], [ %.554.us, %B474.if.if ]
  ret i32 %common.ret.op

B40:                                              ; preds = %B28.us, %B28.preheader447
  store i64 -2, ptr %retptr, align 8
  br label %common.ret

B112:                                             ; preds = %B44.us, %B44.us, %B44.peel, %B44.peel
  store i64 -1, ptr %retptr, align 8
  br label %common.ret

B404:                                             ; preds = %B356.endif.us
  store i64 -1, ptr %retptr, align 8
  br label %common.ret

B656:                                             ; preds = %B622.us
  store i64 -1, ptr %retptr, align 8
  br label %common.ret

B1066:                                            ; preds = %B1042.us
  store i64 -1, ptr %retptr, align 8
  br label %common.ret

B1164:                                            ; preds = %B148.B1086_crit_edge.us, %B44.peel
  store i64 -1, ptr %retptr, align 8
  br label %common.ret

B1202:                                            ; preds = %B1168.us, %B0
  %row.3.1 = phi i64 [ 0, %B0 ], [ %.1035.us, %B1168.us ]
  store i64 %row.3.1, ptr %retptr, align 8
  br label %common.ret

B232.if.if:                                       ; preds = %B232.us
  %.377 = icmp sgt i32 %.369.us, 0
  %.370 = load ptr, ptr %excinfo.1, align 8
  %.378 = select i1 %.377, ptr %.370, ptr undef
  store ptr %.378, ptr %excinfo, align 8
  br label %common.ret

B356.if.if:                                       ; preds = %B356.us
  store ptr null, ptr %excinfo, align 8
  br label %common.ret

B474.if.if:                                       ; preds = %B474.us
  store ptr null, ptr %excinfo, align 8
  br label %common.ret
}

; Function Attrs: nofree norecurse nosync nounwind memory(argmem: readwrite)
define internal range(i32 -1, -2) i32 @_ZN8__main__7_numberB3v15B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2axhhbx10float64_2a8int64_2a10float64_2a9uint64_2a(ptr noalias writeonly captures(none) %retptr, ptr noalias writeonly captures(none) %excinfo, ptr readonly captures(none) %arg.text, i64 %arg.at, i8 %arg.separator, i8 %arg.point, i8 %arg.whole, i64 %arg.place, ptr writeonly captures(none) %arg.numbers, ptr writeonly captures(none) %arg.wholes, ptr readonly captures(none) %arg.tens, ptr readonly captures(none) %arg.fives) local_unnamed_addr #0 {
entry:
  %.992 = alloca i64, align 8
  %excinfo.1 = alloca ptr, align 8
  %.42 = getelementptr i8, ptr %arg.text, i64 %arg.at
  %.43 = load i8, ptr %.42, align 1
  %.45 = icmp eq i8 %.43, 45
  %.51 = zext i1 %.45 to i64
  %.52 = add nsw i64 %arg.at, %.51
  %.72 = getelementptr i8, ptr %arg.text, i64 %.52
  %.73 = load i8, ptr %.72, align 1
  %.75 = add i8 %.73, -48
  %.78 = icmp ult i8 %.75, 10
  br i1 %.78, label %B178.preheader, label %B350

B178.preheader:                                   ; preds = %entry
  br label %B178

B178:                                             ; preds = %B178, %B178.preheader
  %.85 = phi i8 [ %.101, %B178 ], [ %.73, %B178.preheader ]
  %at.1.7.0 = phi i64 [ %.94, %B178 ], [ %.52, %B178.preheader ]
  %digits.3.0 = phi i64 [ %.88, %B178 ], [ 0, %B178.preheader ]
  %.81 = mul i64 %digits.3.0, 10
  %.86 = zext nneg i8 %.85 to i64
  %.87 = add nsw i64 %.86, -48
  %.88 = add i64 %.87, %.81
  %.94 = add i64 %at.1.7.0, 1
  %sunkaddr = getelementptr i8, ptr %arg.text, i64 %at.1.7.0
  %sunkaddr10 = getelementptr i8, ptr %sunkaddr, i64 1
  %.101 = load i8, ptr %sunkaddr10, align 1
  %.103 = add i8 %.101, -48
  %.106 = icmp ult i8 %.103, 10
  br i1 %.106, label %B178, label %B350

B350:                                             ; preds = %B178, %entry
  %.789.pre = phi i8 [ %.73, %entry ], [ %.101, %B178 ]
  %at.1.8.1 = phi i64 [ %.52, %entry ], [ %.94, %B178 ]
  %digits.5.1 = phi i64 [ 0, %entry ], [ %.88, %B178 ]
  %.114 = sub nsw i64 %at.1.8.1, %.52
  %.124 = icmp eq i64 %.114, 0
  br i1 %.124, label %B402, label %B376

B376:                                             ; preds = %B350
  %0 = icmp eq i8 %arg.whole, 0
  br i1 %0, label %B412, label %B380

B380:                                             ; preds = %B376
  %.129 = icmp sgt i64 %.114, 18
  br i1 %.129, label %B402, label %B1432

common.ret:                                       ; preds = %B1844.if.if, %B2050, %B1946, %B1524, %B1408, %B982, %B720, %B402
  %common.ret.op = phi i32 [ 0, %B402 ], [ 0, %B720 ], [ 0, %B982 ], [ 0, %B1408 ], [ 0, %B1524 ], [ 0, %B1946 ], [ 0, %B2050 ], [ %.99622, %B1844.if.if ]
  ret i32 %common.ret.op

B402:                                             ; preds = %B380, %B350
  store i64 -1, ptr %retptr, align 8
  br label %common.ret

B412:                                             ; preds = %B376
  %.206 = icmp eq i8 %.789.pre, %arg.point
  br i1 %.206, label %B436, label %B724

B436:                                             ; preds = %B412
  %.227 = add nsw i64 %at.1.8.1, 1
  %.240 = getelementptr i8, ptr %arg.text, i64 %.227
  %.241 = load i8, ptr %.240, align 1
  %.243 = add i8 %.241, -48
  %.246 = icmp ult i8 %.243, 10
  br i1 %.246, label %B516.preheader, label %B688

B516.preheader:                                   ; preds = %B436
  br label %B516

B516:                                             ; preds = %B516, %B516.preheader
  %.253 = phi i8 [ %.269, %B516 ], [ %.241, %B516.preheader ]
  %digits.4.0 = phi i64 [ %.256, %B516 ], [ %digits.5.1, %B516.preheader ]
  %at.1.9.0 = phi i64 [ %.262, %B516 ], [ %.227, %B516.preheader ]
  %.249 = mul i64 %digits.4.0, 10
  %.254 = zext nneg i8 %.253 to i64
  %.255 = add nsw i64 %.254, -48
  %.256 = add i64 %.255, %.249
  %.262 = add i64 %at.1.9.0, 1
  %sunkaddr11 = getelementptr i8, ptr %arg.text, i64 %at.1.9.0
  %sunkaddr12 = getelementptr i8, ptr %sunkaddr11, i64 1
  %.269 = load i8, ptr %sunkaddr12, align 1
  %.271 = add i8 %.269, -48
  %.274 = icmp ult i8 %.271, 10
  br i1 %.274, label %B516, label %B688

B688:                                             ; preds = %B516, %B436
  %digits.8.1 = phi i64 [ %digits.5.1, %B436 ], [ %.256, %B516 ]
  %at.1.10.1 = phi i64 [ %.227, %B436 ], [ %.262, %B516 ]
  %.290 = sub nsw i64 %.227, %at.1.10.1
  %.298 = sub nsw i64 %.114, %.290
  %.303 = icmp eq i64 %.290, 0
  br i1 %.303, label %B720, label %B724

B720:                                             ; preds = %B688
  store i64 -1, ptr %retptr, align 8
  br label %common.ret

B724:                                             ; preds = %B688, %B412
  %at.1.11.1 = phi i64 [ %at.1.10.1, %B688 ], [ %at.1.8.1, %B412 ]
  %digits.7.1 = phi i64 [ %digits.8.1, %B688 ], [ %digits.5.1, %B412 ]
  %count.3.0 = phi i64 [ %.298, %B688 ], [ %.114, %B412 ]
  %power.3.1 = phi i64 [ %.290, %B688 ], [ 0, %B412 ]
  %.348 = icmp sgt i64 %count.3.0, 19
  br i1 %.348, label %B746, label %B986

B746:                                             ; preds = %B724
  %.365 = icmp eq i8 %.73, 48
  %.385 = icmp eq i8 %.73, %arg.point
  %or.cond = select i1 %.365, i1 true, i1 %.385
  br i1 %or.cond, label %B804.preheader, label %B982

B804.preheader:                                   ; preds = %B746
  %1 = add i64 %arg.at, %.51
  %2 = add i64 %1, 1
  %scevgep = getelementptr i8, ptr %arg.text, i64 %2
  br label %B804

B804:                                             ; preds = %B902, %B804.preheader
  %lsr.iv3 = phi ptr [ %scevgep4, %B902 ], [ %scevgep, %B804.preheader ]
  %.394 = phi i8 [ %.73, %B804.preheader ], [ %.424, %B902 ]
  %count.4.1 = phi i64 [ %count.3.0, %B804.preheader ], [ %.400, %B902 ]
  %.396 = icmp eq i8 %.394, 48
  %.398.neg = sext i1 %.396 to i64
  %.400 = add nsw i64 %count.4.1, %.398.neg
  %.417 = icmp sgt i64 %.400, 19
  br i1 %.417, label %B902, label %B986

B902:                                             ; preds = %B804
  %.424 = load i8, ptr %lsr.iv3, align 1
  %.426 = icmp eq i8 %.424, 48
  %.436 = icmp eq i8 %.424, %arg.point
  %or.cond291 = select i1 %.426, i1 true, i1 %.436
  %scevgep4 = getelementptr i8, ptr %lsr.iv3, i64 1
  br i1 %or.cond291, label %B804, label %B982

B982:                                             ; preds = %B902, %B746
  store i64 -1, ptr %retptr, align 8
  br label %common.ret

B986:                                             ; preds = %B804, %B724
  %.494 = getelementptr i8, ptr %arg.text, i64 %at.1.11.1
  %.495 = load i8, ptr %.494, align 1
  %3 = and i8 %.495, -33
  %.498 = icmp eq i8 %3, 69
  br i1 %.498, label %B1026, label %B1432

B1026:                                            ; preds = %B986
  %.507 = add nsw i64 %at.1.11.1, 1
  %.515 = getelementptr i8, ptr %arg.text, i64 %.507
  %.516 = load i8, ptr %.515, align 1
  %.518 = icmp eq i8 %.516, 45
  %.542 = icmp eq i8 %.516, 43
  %spec.select292 = or i1 %.518, %.542
  %.550 = zext i1 %spec.select292 to i64
  %.556 = add nsw i64 %.507, %.550
  %.579 = getelementptr i8, ptr %arg.text, i64 %.556
  %.580 = load i8, ptr %.579, align 1
  %.621 = zext nneg i8 %.580 to i64
  %.582 = add i8 %.580, -48
  %.585 = icmp ult i8 %.582, 10
  br i1 %.585, label %B1232, label %B1408

B1232:                                            ; preds = %B1026
  %.622 = add nsw i64 %.621, -48
  %.631 = add nsw i64 %.556, 1
  %.642 = getelementptr i8, ptr %arg.text, i64 %.631
  %.643 = load i8, ptr %.642, align 1
  %.621.1 = zext nneg i8 %.643 to i64
  %.645 = add i8 %.643, -48
  %.648 = icmp ult i8 %.645, 10
  br i1 %.648, label %B1232.1, label %B1412

B1232.1:                                          ; preds = %B1232
  %.614.1 = mul nuw nsw i64 %.622, 10
  %.622.1 = add nsw i64 %.614.1, -48
  %.623.1 = add nsw i64 %.622.1, %.621.1
  %.631.1 = add nsw i64 %.556, 2
  %.642.1 = getelementptr i8, ptr %arg.text, i64 %.631.1
  %.643.1 = load i8, ptr %.642.1, align 1
  %.621.2 = zext nneg i8 %.643.1 to i64
  %.645.1 = add i8 %.643.1, -48
  %.648.1 = icmp ult i8 %.645.1, 10
  br i1 %.648.1, label %B1232.2, label %B1412

B1232.2:                                          ; preds = %B1232.1
  %.614.2 = mul nuw nsw i64 %.623.1, 10
  %.622.2 = add nsw i64 %.614.2, -48
  %.623.2 = add nsw i64 %.622.2, %.621.2
  %.631.2 = add nsw i64 %.556, 3
  %.642.2 = getelementptr i8, ptr %arg.text, i64 %.631.2
  %.643.2 = load i8, ptr %.642.2, align 1
  %.621.3 = zext nneg i8 %.643.2 to i64
  %.645.2 = add i8 %.643.2, -48
  %.648.2 = icmp ult i8 %.645.2, 10
  br i1 %.648.2, label %B1232.3, label %B1412

B1232.3:                                          ; preds = %B1232.2
  %.614.3 = mul nuw nsw i64 %.623.2, 10
  %.622.3 = add nsw i64 %.614.3, -48
  %.623.3 = add nsw i64 %.622.3, %.621.3
  %.631.3 = add nsw i64 %.556, 4
  %.642.3 = getelementptr i8, ptr %arg.text, i64 %.631.3
  %.643.3 = load i8, ptr %.642.3, align 1
  br label %B1412

B1408:                                            ; preds = %B1026
  store i64 -1, ptr %retptr, align 8
  br label %common.ret

B1412:                                            ; preds = %B1232.3, %B1232.2, %B1232.1, %B1232
  %.623.lcssa = phi i64 [ %.622, %B1232 ], [ %.623.1, %B1232.1 ], [ %.623.2, %B1232.2 ], [ %.623.3, %B1232.3 ]
  %.631.lcssa = phi i64 [ %.631, %B1232 ], [ %.631.1, %B1232.1 ], [ %.631.2, %B1232.2 ], [ %.631.3, %B1232.3 ]
  %.643.lcssa = phi i8 [ %.643, %B1232 ], [ %.643.1, %B1232.1 ], [ %.643.2, %B1232.2 ], [ %.643.3, %B1232.3 ]
  %4 = icmp eq i8 %.516, 45
  %.735 = sub nsw i64 0, %.623.lcssa
  %spec.select294 = select i1 %4, i64 %.735, i64 %.623.lcssa
  %.760 = add nsw i64 %spec.select294, %power.3.1
  br label %B1432

B1432:                                            ; preds = %B1412, %B986, %B380
  %.789 = phi i8 [ %.495, %B986 ], [ %.643.lcssa, %B1412 ], [ %.789.pre, %B380 ]
  %at.1.14.0 = phi i64 [ %at.1.11.1, %B986 ], [ %.631.lcssa, %B1412 ], [ %at.1.8.1, %B380 ]
  %digits.6.0 = phi i64 [ %digits.7.1, %B986 ], [ %digits.7.1, %B1412 ], [ %digits.5.1, %B380 ]
  %power.4.0 = phi i64 [ %power.3.1, %B986 ], [ %.760, %B1412 ], [ 0, %B380 ]
  %.791.not = icmp eq i8 %.789, %arg.separator
  br i1 %.791.not, label %B1528, label %B1456

B1456:                                            ; preds = %B1432
  %5 = zext i8 %.789 to i32
  switch i32 %5, label %B1524 [
    i32 10, label %B1528
    i32 13, label %B1528
  ]

B1524:                                            ; preds = %B1456
  store i64 -1, ptr %retptr, align 8
  br label %common.ret

B1528:                                            ; preds = %B1456, %B1456, %B1432
  %6 = icmp eq i8 %arg.whole, 0
  br i1 %6, label %B1606, label %B1532

B1532:                                            ; preds = %B1528
  %7 = icmp eq i8 %.43, 45
  %.854 = sub i64 0, %digits.6.0
  %spec.select295 = select i1 %7, i64 %.854, i64 %digits.6.0
  %.868 = getelementptr i64, ptr %arg.wholes, i64 %arg.place
  store i64 %spec.select295, ptr %.868, align 8
  br label %B2050

B1606:                                            ; preds = %B1528
  %.878 = icmp ult i64 %digits.6.0, 9007199254740992
  br i1 %.878, label %B1654, label %B1844

B1654:                                            ; preds = %B1606
  %8 = add i64 %power.4.0, 22
  %or.cond296 = icmp ult i64 %8, 45
  br i1 %or.cond296, label %B1708, label %B1840

B1708:                                            ; preds = %B1654
  %.906 = icmp slt i64 %power.4.0, 0
  %.909 = uitofp nneg i64 %digits.6.0 to double
  br i1 %.906, label %B1720, label %B1770

B1720:                                            ; preds = %B1708
  %.913 = sub nsw i64 0, %power.4.0
  %.917 = getelementptr double, ptr %arg.tens, i64 %.913
  %.918 = load double, ptr %.917, align 8
  %.924 = fdiv double %.909, %.918
  br label %B1816

B1770:                                            ; preds = %B1708
  %.935 = getelementptr double, ptr %arg.tens, i64 %power.4.0
  %.936 = load double, ptr %.935, align 8
  %.941 = fmul double %.936, %.909
  br label %B1816

B1816:                                            ; preds = %B1770, %B1720
  %"$phi1816.0.2.0" = phi double [ %.924, %B1720 ], [ %.941, %B1770 ]
  %9 = icmp eq i8 %.43, 45
  %.956 = fneg double %"$phi1816.0.2.0"
  %spec.select297 = select i1 %9, double %.956, double %"$phi1816.0.2.0"
  %.972 = getelementptr double, ptr %arg.numbers, i64 %arg.place
  store double %spec.select297, ptr %.972, align 8
  br label %B2050

B1840:                                            ; preds = %B1654
  %.986.not = icmp eq i64 %digits.6.0, 0
  br i1 %.986.not, label %B1946, label %B1844

B1844:                                            ; preds = %B1840, %B1606
  %.99622 = call i32 @_ZN8__main__8_roundedB2v3B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAEyx9uint64_2a(ptr nonnull %.992, ptr nonnull %excinfo.1, i64 %digits.6.0, i64 %power.4.0, ptr %arg.fives)
  %.1006 = load i64, ptr %.992, align 8
  %cond = icmp eq i32 %.99622, 0
  br i1 %cond, label %B1906, label %B1844.if.if, !prof !0

B1906:                                            ; preds = %B1844
  %.1044 = icmp eq i64 %.1006, 0
  br i1 %.1044, label %B1946, label %B1950

B1946:                                            ; preds = %B1906, %B1840
  store i64 -1, ptr %retptr, align 8
  br label %common.ret

B1950:                                            ; preds = %B1906
  %10 = icmp eq i8 %.43, 45
  %.1063 = select i1 %10, i64 -9223372036854775808, i64 0
  %.1065 = or i64 %.1006, %.1063
  %.1070 = getelementptr i64, ptr %arg.wholes, i64 %arg.place
  store i64 %.1065, ptr %.1070, align 8
  br label %B2050

B2050:                                            ; preds = %B1950, %B1816, %B1532
  store i64 %at.1.14.0, ptr %retptr, align 8
  br label %common.ret

B1844.if.if:                                      ; preds = %B1844
  store ptr null, ptr %excinfo, align 8
  br label %common.ret
}

; Function Attrs: nofree norecurse nosync nounwind memory(argmem: readwrite)
define internal noundef range(i32 -1, -2) i32 @_ZN8__main__12_end_of_cellB3v16B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2axxh(ptr noalias writeonly captures(none) %retptr, ptr noalias readnone captures(none) %excinfo, ptr readonly captures(none) %arg.text, i64 %arg.at, i64 %arg.end, i8 %arg.separator) local_unnamed_addr #0 {
B0:
  %.18 = getelementptr i8, ptr %arg.text, i64 %arg.at
  %.19 = load i8, ptr %.18, align 1
  %.21 = icmp eq i8 %.19, 34
  br i1 %.21, label %B38, label %B304.endif.endif.endif.endif.preheader

B304.endif.endif.endif.endif.preheader:           ; preds = %B0
  %const4 = bitcast i64 -72340172838076673 to i64
  %const2 = bitcast i64 -9187201950435737472 to i64
  %const = bitcast i64 72340172838076673 to i64
  %.6.i = zext i8 %arg.separator to i64
  %.7.i43 = mul nuw i64 %.6.i, %const
  %0 = add i64 %arg.at, -8
  br label %B304.endif.endif.endif.endif

B38:                                              ; preds = %B0
  %.26 = add nsw i64 %arg.at, 1
  %.3986 = icmp slt i64 %.26, %arg.end
  br i1 %.3986, label %B60.endif.endif.preheader, label %common.ret

B60.endif.endif.preheader:                        ; preds = %B38
  %const5 = bitcast i64 -72340172838076673 to i64
  %const3 = bitcast i64 -9187201950435737472 to i64
  %const1 = bitcast i64 72340172838076673 to i64
  br label %B60.endif.endif

B168:                                             ; preds = %B60.endif.endif
  %.109 = add nsw i64 %at.7.1, 8
  %.39 = icmp slt i64 %.109, %arg.end
  br i1 %.39, label %B60.endif.endif, label %common.ret

B256:                                             ; preds = %B180.endif
  %.162.not = icmp sgt i64 %.145, %arg.end
  %spec.select = select i1 %.162.not, i64 -1, i64 %.145
  br label %common.ret

common.ret:                                       ; preds = %B494.endif, %B276, %B256, %B168, %B38
  %.358.sink = phi i64 [ %8, %B494.endif ], [ %spec.select, %B256 ], [ -1, %B38 ], [ -1, %B168 ], [ -1, %B276 ]
  store i64 %.358.sink, ptr %retptr, align 8
  ret i32 0

B276:                                             ; preds = %B180.endif
  %.184 = add nsw i64 %.145, 1
  %.190 = icmp slt i64 %.184, %arg.end
  br i1 %.190, label %B60.endif.endif, label %common.ret

B60.endif.endif:                                  ; preds = %B276, %B168, %B60.endif.endif.preheader
  %at.7.1 = phi i64 [ %.26, %B60.endif.endif.preheader ], [ %.109, %B168 ], [ %.184, %B276 ]
  %1 = getelementptr i8, ptr %arg.text, i64 %at.7.1
  %.136.i = load i64, ptr %1, align 1, !noalias !4
  %.7.i = xor i64 %.136.i, 2459565876494606882
  %.8.i39 = add i64 %.7.i, %const5
  %.9.i40 = and i64 %.136.i, %const3
  %.10.i41 = xor i64 %.9.i40, %const3
  %.11.i42 = and i64 %.10.i41, %.8.i39
  %.104 = icmp eq i64 %.11.i42, 0
  br i1 %.104, label %B168, label %B180.endif

B180.endif:                                       ; preds = %B60.endif.endif
  %2 = add i64 %.11.i42, -1
  %3 = xor i64 %.11.i42, -1
  %.8.i = and i64 %2, %3
  %.9.i = lshr i64 %.8.i, 7
  %.10.i = and i64 %.9.i, %const1
  %.11.i = mul i64 %.10.i, %const1
  %.12.i = lshr i64 %.11.i, 56
  %.143 = add i64 %at.7.1, 1
  %.145 = add i64 %.143, %.12.i
  %.153 = getelementptr i8, ptr %arg.text, i64 %.145
  %.154 = load i8, ptr %.153, align 1
  %.156.not = icmp eq i8 %.154, 34
  br i1 %.156.not, label %B276, label %B256

B304.endif.endif.endif.endif:                     ; preds = %B304.endif.endif.endif.endif, %B304.endif.endif.endif.endif.preheader
  %lsr.iv = phi i64 [ %lsr.iv.next, %B304.endif.endif.endif.endif ], [ %0, %B304.endif.endif.endif.endif.preheader ]
  %scevgep = getelementptr i8, ptr %arg.text, i64 %lsr.iv
  %scevgep75 = getelementptr i8, ptr %scevgep, i64 8
  %.136.i33 = load i64, ptr %scevgep75, align 1, !noalias !7
  %.8.i44 = xor i64 %.136.i33, %.7.i43
  %.9.i45 = add i64 %.8.i44, %const4
  %.10.i46 = and i64 %.8.i44, %const2
  %.11.i47 = xor i64 %.10.i46, %const2
  %.12.i48 = and i64 %.11.i47, %.9.i45
  %.7.i49 = xor i64 %.136.i33, 723401728380766730
  %.8.i50 = add i64 %.7.i49, %const4
  %.9.i51 = and i64 %.136.i33, %const2
  %.10.i52 = xor i64 %.9.i51, %const2
  %.7.i54 = xor i64 %.136.i33, 940422246894996749
  %.8.i55 = add i64 %.7.i54, %const4
  %4 = or i64 %.8.i50, %.8.i55
  %5 = and i64 %4, %.10.i52
  %.318 = or i64 %5, %.12.i48
  %.323.not = icmp eq i64 %.318, 0
  %lsr.iv.next = add i64 %lsr.iv, 8
  br i1 %.323.not, label %B304.endif.endif.endif.endif, label %B494.endif

B494.endif:                                       ; preds = %B304.endif.endif.endif.endif
  %6 = add i64 %.318, -1
  %7 = xor i64 %.318, -1
  %.8.i34 = and i64 %6, %7
  %.9.i35 = lshr i64 %.8.i34, 7
  %.10.i36 = and i64 %.9.i35, %const
  %.11.i37 = mul i64 %.10.i36, %const
  %.12.i38 = lshr i64 %.11.i37, 56
  %8 = add i64 %.12.i38, %lsr.iv.next
  br label %common.ret
}

; Function Attrs: nofree norecurse nosync nounwind memory(argmem: readwrite)
define internal noundef range(i32 -1, -2) i32 @_ZN8__main__5_hashB3v17B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2axx(ptr noalias writeonly captures(none) %retptr, ptr noalias readnone captures(none) %excinfo, ptr readonly captures(none) %arg.text, i64 %arg.at, i64 %arg.length) local_unnamed_addr #0 {
B0:
  %.18 = icmp eq i64 %arg.length, 0
  br i1 %.18, label %common.ret, label %B50

common.ret:                                       ; preds = %B216.endif, %B0
  %storemerge = phi i64 [ %.163, %B216.endif ], [ 0, %B0 ]
  store i64 %storemerge, ptr %retptr, align 8
  ret i32 0

B50:                                              ; preds = %B0
  %const = bitcast i64 -7046029254386353131 to i64
  %.60 = icmp sgt i64 %arg.length, 8
  br i1 %.60, label %B62.endif.preheader, label %B216.endif

B62.endif.preheader:                              ; preds = %B50
  %0 = add nsw i64 %arg.length, -9
  %1 = and i64 %0, 56
  %lcmp.mod.not = icmp eq i64 %1, 56
  br i1 %lcmp.mod.not, label %B62.endif.preheader10, label %B62.endif.prol.preheader

B62.endif.prol.preheader:                         ; preds = %B62.endif.preheader
  %2 = lshr i64 %0, 3
  %3 = add nuw nsw i64 %2, 1
  %xtraiter = and i64 %3, 7
  %scevgep28 = getelementptr i8, ptr %arg.text, i64 %arg.at
  br label %B62.endif.prol

B62.endif.prol:                                   ; preds = %B62.endif.prol, %B62.endif.prol.preheader
  %lsr.iv26 = phi i64 [ %lsr.iv.next27, %B62.endif.prol ], [ 0, %B62.endif.prol.preheader ]
  %mixed.3.0.prol = phi i64 [ %arg.length, %B62.endif.prol.preheader ], [ %.97.prol, %B62.endif.prol ]
  %4 = shl i64 %lsr.iv26, 3
  %scevgep29 = getelementptr i8, ptr %scevgep28, i64 %4
  %.136.i.prol = load i64, ptr %scevgep29, align 1, !noalias !10
  %.94.prol = xor i64 %.136.i.prol, %mixed.3.0.prol
  %.95.prol = mul i64 %.94.prol, %const
  %.96.prol = lshr i64 %.95.prol, 32
  %.97.prol = xor i64 %.96.prol, %.95.prol
  %lsr.iv.next27 = add i64 %lsr.iv26, 1
  %prol.iter.cmp.not = icmp eq i64 %xtraiter, %lsr.iv.next27
  br i1 %prol.iter.cmp.not, label %B62.endif.prol.loopexit, label %B62.endif.prol, !llvm.loop !13

B62.endif.prol.loopexit:                          ; preds = %B62.endif.prol
  %5 = shl nuw nsw i64 %xtraiter, 3
  %6 = add i64 %arg.at, %5
  %7 = sub nsw i64 %arg.length, %5
  %8 = icmp samesign ult i64 %arg.length, 65
  br i1 %8, label %B216.endif, label %B62.endif.preheader10

B62.endif.preheader10:                            ; preds = %B62.endif.prol.loopexit, %B62.endif.preheader
  %at.2.0.ph = phi i64 [ %arg.at, %B62.endif.preheader ], [ %6, %B62.endif.prol.loopexit ]
  %length.2.0.ph = phi i64 [ %arg.length, %B62.endif.preheader ], [ %7, %B62.endif.prol.loopexit ]
  %mixed.3.0.ph = phi i64 [ %arg.length, %B62.endif.preheader ], [ %.97.prol, %B62.endif.prol.loopexit ]
  br label %B62.endif

B62.endif:                                        ; preds = %B62.endif, %B62.endif.preheader10
  %at.2.0 = phi i64 [ %.103.7, %B62.endif ], [ %at.2.0.ph, %B62.endif.preheader10 ]
  %length.2.0 = phi i64 [ %.109.7, %B62.endif ], [ %length.2.0.ph, %B62.endif.preheader10 ]
  %mixed.3.0 = phi i64 [ %.97.7, %B62.endif ], [ %mixed.3.0.ph, %B62.endif.preheader10 ]
  %sunkaddr = getelementptr i8, ptr %arg.text, i64 %at.2.0
  %.136.i = load i64, ptr %sunkaddr, align 1, !noalias !10
  %.94 = xor i64 %.136.i, %mixed.3.0
  %.95 = mul i64 %.94, %const
  %.96 = lshr i64 %.95, 32
  %sunkaddr30 = getelementptr i8, ptr %arg.text, i64 %at.2.0
  %sunkaddr31 = getelementptr i8, ptr %sunkaddr30, i64 8
  %.136.i.1 = load i64, ptr %sunkaddr31, align 1, !noalias !10
  %9 = xor i64 %.136.i.1, %.96
  %.94.1 = xor i64 %9, %.95
  %.95.1 = mul i64 %.94.1, %const
  %.96.1 = lshr i64 %.95.1, 32
  %sunkaddr32 = getelementptr i8, ptr %arg.text, i64 %at.2.0
  %sunkaddr33 = getelementptr i8, ptr %sunkaddr32, i64 16
  %.136.i.2 = load i64, ptr %sunkaddr33, align 1, !noalias !10
  %10 = xor i64 %.136.i.2, %.96.1
  %.94.2 = xor i64 %10, %.95.1
  %.95.2 = mul i64 %.94.2, %const
  %.96.2 = lshr i64 %.95.2, 32
  %sunkaddr34 = getelementptr i8, ptr %arg.text, i64 %at.2.0
  %sunkaddr35 = getelementptr i8, ptr %sunkaddr34, i64 24
  %.136.i.3 = load i64, ptr %sunkaddr35, align 1, !noalias !10
  %11 = xor i64 %.136.i.3, %.96.2
  %.94.3 = xor i64 %11, %.95.2
  %.95.3 = mul i64 %.94.3, %const
  %.96.3 = lshr i64 %.95.3, 32
  %sunkaddr36 = getelementptr i8, ptr %arg.text, i64 %at.2.0
  %sunkaddr37 = getelementptr i8, ptr %sunkaddr36, i64 32
  %.136.i.4 = load i64, ptr %sunkaddr37, align 1, !noalias !10
  %12 = xor i64 %.136.i.4, %.96.3
  %.94.4 = xor i64 %12, %.95.3
  %.95.4 = mul i64 %.94.4, %const
  %.96.4 = lshr i64 %.95.4, 32
  %sunkaddr38 = getelementptr i8, ptr %arg.text, i64 %at.2.0
  %sunkaddr39 = getelementptr i8, ptr %sunkaddr38, i64 40
  %.136.i.5 = load i64, ptr %sunkaddr39, align 1, !noalias !10
  %13 = xor i64 %.136.i.5, %.96.4
  %.94.5 = xor i64 %13, %.95.4
  %.95.5 = mul i64 %.94.5, %const
  %.96.5 = lshr i64 %.95.5, 32
  %sunkaddr40 = getelementptr i8, ptr %arg.text, i64 %at.2.0
  %sunkaddr41 = getelementptr i8, ptr %sunkaddr40, i64 48
  %.136.i.6 = load i64, ptr %sunkaddr41, align 1, !noalias !10
  %14 = xor i64 %.136.i.6, %.96.5
  %.94.6 = xor i64 %14, %.95.5
  %.95.6 = mul i64 %.94.6, %const
  %.96.6 = lshr i64 %.95.6, 32
  %sunkaddr42 = getelementptr i8, ptr %arg.text, i64 %at.2.0
  %sunkaddr43 = getelementptr i8, ptr %sunkaddr42, i64 56
  %.136.i.7 = load i64, ptr %sunkaddr43, align 1, !noalias !10
  %15 = xor i64 %.136.i.7, %.96.6
  %.94.7 = xor i64 %15, %.95.6
  %.95.7 = mul i64 %.94.7, %const
  %.96.7 = lshr i64 %.95.7, 32
  %.97.7 = xor i64 %.96.7, %.95.7
  %.103.7 = add i64 %at.2.0, 64
  %.109.7 = add i64 %length.2.0, -64
  %16 = add i64 %.109.7, 64
  %.114.7 = icmp sgt i64 %16, 72
  br i1 %.114.7, label %B62.endif, label %B216.endif

B216.endif:                                       ; preds = %B62.endif, %B62.endif.prol.loopexit, %B50
  %at.3.1 = phi i64 [ %arg.at, %B50 ], [ %6, %B62.endif.prol.loopexit ], [ %.103.7, %B62.endif ]
  %length.3.1 = phi i64 [ %arg.length, %B50 ], [ %7, %B62.endif.prol.loopexit ], [ %.109.7, %B62.endif ]
  %mixed.4.1 = phi i64 [ %arg.length, %B50 ], [ %.97.prol, %B62.endif.prol.loopexit ], [ %.97.7, %B62.endif ]
  %17 = getelementptr i8, ptr %arg.text, i64 %at.3.1
  %.136.i2 = load i64, ptr %17, align 1, !noalias !15
  %18 = shl i64 %length.3.1, 3
  %.157 = sub i64 64, %18
  %.158 = shl i64 %.136.i2, %.157
  %.160 = xor i64 %.158, %mixed.4.1
  %.163 = mul i64 %.160, %const
  br label %common.ret
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(argmem: readwrite)
define internal noundef range(i32 -1, -2) i32 @_ZN8__main__8_roundedB2v3B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAEyx9uint64_2a(ptr noalias writeonly captures(none) initializes((0, 8)) %retptr, ptr noalias readnone captures(none) %excinfo, i64 %arg.digits, i64 %arg.power, ptr readonly captures(none) %arg.fives) local_unnamed_addr #1 {
B0:
  %0 = add i64 %arg.power, -281
  %or.cond = icmp ult i64 %0, -561
  br i1 %or.cond, label %common.ret, label %B216.endif

common.ret:                                       ; preds = %B216.endif, %B546, %B0
  %.345.sink = phi i64 [ %.345, %B546 ], [ 0, %B0 ], [ 0, %B216.endif ]
  store i64 %.345.sink, ptr %retptr, align 8
  ret i32 0

B546:                                             ; preds = %B216.endif
  %1 = icmp sgt i64 %digits.3.1.4, -1
  %2 = icmp ult i64 %digits.3.1.3, %const1
  %3 = icmp ult i64 %digits.3.1.2, %const
  %4 = icmp ult i64 %digits.3.1.1, 72057594037927936
  %5 = icmp ult i64 %digits.3.1, 281474976710656
  %6 = icmp ult i64 %arg.digits, 4294967296
  %7 = icmp sgt i64 %.45.i, -1
  %.178.5.neg2 = sext i1 %1 to i64
  %.178.4.neg = select i1 %2, i64 4094, i64 %const1
  %.178.3.neg = select i1 %3, i64 4092, i64 %const
  %.178.2.neg = select i1 %4, i64 -8, i64 0
  %.178.1.neg = select i1 %5, i64 -16, i64 0
  %.288.neg128 = sext i1 %7 to i64
  %.322 = mul nsw i64 %arg.power, 217706
  %.325 = lshr i64 %.322, 16
  %shift.4.1.1.neg = select i1 %6, i64 32, i64 64
  %shift.4.1.2.neg = add nuw nsw i64 %.325, %shift.4.1.1.neg
  %shift.4.1.3.neg = add nsw i64 %shift.4.1.2.neg, %.178.1.neg
  %shift.4.1.4.neg1 = add nsw i64 %shift.4.1.3.neg, %.178.2.neg
  %shift.4.1.5.neg = add nuw nsw i64 %shift.4.1.4.neg1, %.178.3.neg
  %shift.5.0.neg = add nuw nsw i64 %shift.4.1.5.neg, %.178.4.neg
  %.326 = add nsw i64 %shift.5.0.neg, %.178.5.neg2
  %.328 = add nsw i64 %.326, %.288.neg128
  %.331 = shl i64 %.328, 52
  %.334 = lshr i64 %high.2.0, 11
  %.340 = icmp samesign ugt i64 %.301, 1024
  %.344 = zext i1 %.340 to i64
  %.337 = add i64 %.331, 4602678819172646912
  %.338 = add i64 %.337, %.334
  %.345 = add i64 %.338, %.344
  br label %common.ret

B216.endif:                                       ; preds = %B0
  %const1 = bitcast i64 4611686018427387904 to i64
  %const = bitcast i64 1152921504606846976 to i64
  %.174 = icmp ult i64 %arg.digits, 4294967296
  %.178 = select i1 %.174, i64 32, i64 0
  %digits.3.1 = shl i64 %arg.digits, %.178
  %.174.1 = icmp ult i64 %digits.3.1, 281474976710656
  %.178.1 = select i1 %.174.1, i64 16, i64 0
  %digits.3.1.1 = shl i64 %digits.3.1, %.178.1
  %.174.2 = icmp ult i64 %digits.3.1.1, 72057594037927936
  %.178.2 = select i1 %.174.2, i64 8, i64 0
  %digits.3.1.2 = shl i64 %digits.3.1.1, %.178.2
  %.174.3 = icmp ult i64 %digits.3.1.2, %const
  %.178.3 = select i1 %.174.3, i64 4, i64 0
  %digits.3.1.3 = shl i64 %digits.3.1.2, %.178.3
  %.174.4 = icmp ult i64 %digits.3.1.3, %const1
  %.178.4 = select i1 %.174.4, i64 2, i64 0
  %digits.3.1.4 = shl i64 %digits.3.1.3, %.178.4
  %.174.5 = icmp sgt i64 %digits.3.1.4, -1
  %.178.5 = zext i1 %.174.5 to i64
  %digits.3.1.5 = shl i64 %digits.3.1.4, %.178.5
  %8 = getelementptr i64, ptr %arg.fives, i64 %arg.power
  %.224 = getelementptr i8, ptr %8, i64 2240
  %.225 = load i64, ptr %.224, align 8
  %.6.i = lshr i64 %digits.3.1.5, 32
  %.7.i = and i64 %digits.3.1.5, 4294967295
  %.8.i = lshr i64 %.225, 32
  %.9.i = and i64 %.225, 4294967295
  %.34.i = mul nuw i64 %.9.i, %.6.i
  %.35.i = mul nuw i64 %.9.i, %.7.i
  %.36.i = lshr i64 %.35.i, 32
  %.37.i = add nuw i64 %.36.i, %.34.i
  %.38.i = mul nuw i64 %.8.i, %.7.i
  %.39.i = and i64 %.37.i, 4294967295
  %.40.i = add nuw i64 %.39.i, %.38.i
  %.41.i = mul nuw i64 %.8.i, %.6.i
  %.42.i = lshr i64 %.37.i, 32
  %.43.i = add nuw i64 %.42.i, %.41.i
  %.44.i = lshr i64 %.40.i, 32
  %.45.i = add nuw i64 %.43.i, %.44.i
  %.46.i = lshr i64 %.40.i, 31
  %.47.i = and i64 %.46.i, 1
  %.278 = shl i64 %.45.i, 1
  %.282 = or disjoint i64 %.278, %.47.i
  %.2751 = icmp slt i64 %.45.i, 0
  %high.2.0 = select i1 %.2751, i64 %.45.i, i64 %.282
  %.301 = and i64 %high.2.0, 2047
  %9 = add nsw i64 %.301, -1022
  %or.cond117 = icmp ult i64 %9, 3
  br i1 %or.cond117, label %common.ret, label %B546
}

; Function Attrs: nofree norecurse nosync nounwind memory(argmem: readwrite)
define noundef i32 @gather(ptr noalias writeonly captures(none) %retptr, ptr noalias readnone captures(none) %excinfo, ptr readonly captures(none) %arg.text, ptr readonly captures(none) %arg.starts, ptr readonly captures(none) %arg.lengths, i64 %arg.count, ptr writeonly captures(none) %arg.out) local_unnamed_addr #0 {
B0.endif:
  %.101100.not = icmp slt i64 %arg.count, 1
  br i1 %.101100.not, label %B194, label %B40.endif.preheader

B40.endif.preheader:                              ; preds = %B0.endif
  %scevgep = getelementptr i8, ptr %arg.out, i64 192
  %scevgep19 = getelementptr i8, ptr %arg.text, i64 192
  %scevgep25 = getelementptr i8, ptr %arg.out, i64 7
  %scevgep42 = getelementptr i8, ptr %arg.text, i64 7
  br label %B40.endif

B102:                                             ; preds = %B102.preheader13, %B102
  %indvars.iv = phi i64 [ %indvars.iv.next.7, %B102 ], [ %indvars.iv.unr, %B102.preheader13 ]
  %scevgep55 = getelementptr i8, ptr %scevgep43, i64 %indvars.iv
  %scevgep56 = getelementptr i8, ptr %scevgep55, i64 -7
  %.276 = load i8, ptr %scevgep56, align 1
  %scevgep38 = getelementptr i8, ptr %scevgep26, i64 %indvars.iv
  %scevgep39 = getelementptr i8, ptr %scevgep38, i64 -7
  store i8 %.276, ptr %scevgep39, align 1
  %scevgep57 = getelementptr i8, ptr %scevgep43, i64 %indvars.iv
  %scevgep58 = getelementptr i8, ptr %scevgep57, i64 -6
  %.276.1 = load i8, ptr %scevgep58, align 1
  %scevgep40 = getelementptr i8, ptr %scevgep26, i64 %indvars.iv
  %scevgep41 = getelementptr i8, ptr %scevgep40, i64 -6
  store i8 %.276.1, ptr %scevgep41, align 1
  %scevgep53 = getelementptr i8, ptr %scevgep43, i64 %indvars.iv
  %scevgep54 = getelementptr i8, ptr %scevgep53, i64 -5
  %.276.2 = load i8, ptr %scevgep54, align 1
  %scevgep36 = getelementptr i8, ptr %scevgep26, i64 %indvars.iv
  %scevgep37 = getelementptr i8, ptr %scevgep36, i64 -5
  store i8 %.276.2, ptr %scevgep37, align 1
  %scevgep51 = getelementptr i8, ptr %scevgep43, i64 %indvars.iv
  %scevgep52 = getelementptr i8, ptr %scevgep51, i64 -4
  %.276.3 = load i8, ptr %scevgep52, align 1
  %scevgep34 = getelementptr i8, ptr %scevgep26, i64 %indvars.iv
  %scevgep35 = getelementptr i8, ptr %scevgep34, i64 -4
  store i8 %.276.3, ptr %scevgep35, align 1
  %scevgep49 = getelementptr i8, ptr %scevgep43, i64 %indvars.iv
  %scevgep50 = getelementptr i8, ptr %scevgep49, i64 -3
  %.276.4 = load i8, ptr %scevgep50, align 1
  %scevgep32 = getelementptr i8, ptr %scevgep26, i64 %indvars.iv
  %scevgep33 = getelementptr i8, ptr %scevgep32, i64 -3
  store i8 %.276.4, ptr %scevgep33, align 1
  %scevgep47 = getelementptr i8, ptr %scevgep43, i64 %indvars.iv
  %scevgep48 = getelementptr i8, ptr %scevgep47, i64 -2
  %.276.5 = load i8, ptr %scevgep48, align 1
  %scevgep30 = getelementptr i8, ptr %scevgep26, i64 %indvars.iv
  %scevgep31 = getelementptr i8, ptr %scevgep30, i64 -2
  store i8 %.276.5, ptr %scevgep31, align 1
  %scevgep45 = getelementptr i8, ptr %scevgep43, i64 %indvars.iv
  %scevgep46 = getelementptr i8, ptr %scevgep45, i64 -1
  %.276.6 = load i8, ptr %scevgep46, align 1
  %scevgep28 = getelementptr i8, ptr %scevgep26, i64 %indvars.iv
  %scevgep29 = getelementptr i8, ptr %scevgep28, i64 -1
  store i8 %.276.6, ptr %scevgep29, align 1
  %indvars.iv.next.7 = add nuw nsw i64 %indvars.iv, 8
  %scevgep44 = getelementptr i8, ptr %scevgep43, i64 %indvars.iv
  %.276.7 = load i8, ptr %scevgep44, align 1
  %scevgep27 = getelementptr i8, ptr %scevgep26, i64 %indvars.iv
  store i8 %.276.7, ptr %scevgep27, align 1
  %exitcond.not.7 = icmp eq i64 %wide.trip.count, %indvars.iv.next.7
  br i1 %exitcond.not.7, label %B140.loopexit, label %B102, !llvm.loop !18

B140.loopexit:                                    ; preds = %B102.prol.loopexit, %vec.epilog.middle.block, %middle.block, %B102
  %sunkaddr = mul i64 %.10795101, 4
  %sunkaddr59 = getelementptr i8, ptr %arg.lengths, i64 %sunkaddr
  %.293.pre = load i32, ptr %sunkaddr59, align 4
  br label %B140

B140:                                             ; preds = %B40.endif, %B140.loopexit
  %.293 = phi i32 [ %.293.pre, %B140.loopexit ], [ %.152, %B40.endif ]
  %.297 = sext i32 %.293 to i64
  %.298 = add nsw i64 %at.3.0103, %.297
  %.301 = getelementptr i8, ptr %arg.out, i64 %.298
  store i8 10, ptr %.301, align 1
  %.303 = add nsw i64 %.298, 1
  %exitcond110.not = icmp eq i64 %arg.count, %.114
  br i1 %exitcond110.not, label %B194, label %B40.endif

B194:                                             ; preds = %B140, %B0.endif
  %at.3.0.lcssa = phi i64 [ 0, %B0.endif ], [ %.303, %B140 ]
  store i64 %at.3.0.lcssa, ptr %retptr, align 8
  ret i32 0

B40.endif:                                        ; preds = %B140, %B40.endif.preheader
  %at.3.0103 = phi i64 [ %.303, %B140 ], [ 0, %B40.endif.preheader ]
  %.10795101 = phi i64 [ %.114, %B140 ], [ 0, %B40.endif.preheader ]
  %.114 = add nuw nsw i64 %.10795101, 1
  %.151 = getelementptr i32, ptr %arg.lengths, i64 %.10795101
  %.152 = load i32, ptr %.151, align 4
  %wide.trip.count = zext nneg i32 %.152 to i64
  %.23290.not = icmp slt i32 %.152, 1
  br i1 %.23290.not, label %B140, label %iter.check

iter.check:                                       ; preds = %B40.endif
  %.144 = getelementptr i32, ptr %arg.starts, i64 %.10795101
  %.145 = load i32, ptr %.144, align 4
  %.271 = sext i32 %.145 to i64
  %0 = getelementptr i8, ptr %arg.text, i64 %.271
  %1 = getelementptr i8, ptr %arg.out, i64 %at.3.0103
  %min.iters.check = icmp ult i32 %.152, 16
  br i1 %min.iters.check, label %B102.preheader, label %vector.memcheck

vector.memcheck:                                  ; preds = %iter.check
  %2 = ptrtoint ptr %arg.out to i64
  %3 = ptrtoint ptr %arg.text to i64
  %4 = add i64 %at.3.0103, %2
  %5 = add i64 %3, %.271
  %6 = sub i64 %4, %5
  %diff.check = icmp ult i64 %6, 256
  br i1 %diff.check, label %B102.preheader, label %vector.main.loop.iter.check

vector.main.loop.iter.check:                      ; preds = %vector.memcheck
  %min.iters.check3 = icmp ult i32 %.152, 256
  br i1 %min.iters.check3, label %vec.epilog.ph, label %vector.ph

vector.ph:                                        ; preds = %vector.main.loop.iter.check
  %n.vec = and i64 %wide.trip.count, 2147483392
  %scevgep14 = getelementptr i8, ptr %scevgep, i64 %at.3.0103
  %scevgep20 = getelementptr i8, ptr %scevgep19, i64 %.271
  br label %vector.body

vector.body:                                      ; preds = %vector.body, %vector.ph
  %index = phi i64 [ 0, %vector.ph ], [ %index.next, %vector.body ]
  %scevgep21 = getelementptr i8, ptr %scevgep20, i64 %index
  %scevgep22 = getelementptr i8, ptr %scevgep21, i64 -192
  %scevgep24 = getelementptr i8, ptr %scevgep21, i64 -128
  %scevgep23 = getelementptr i8, ptr %scevgep21, i64 -64
  %wide.load = load <64 x i8>, ptr %scevgep22, align 1
  %wide.load4 = load <64 x i8>, ptr %scevgep24, align 1
  %wide.load5 = load <64 x i8>, ptr %scevgep23, align 1
  %wide.load6 = load <64 x i8>, ptr %scevgep21, align 1
  %scevgep15 = getelementptr i8, ptr %scevgep14, i64 %index
  %scevgep16 = getelementptr i8, ptr %scevgep15, i64 -192
  %scevgep18 = getelementptr i8, ptr %scevgep15, i64 -128
  %scevgep17 = getelementptr i8, ptr %scevgep15, i64 -64
  store <64 x i8> %wide.load, ptr %scevgep16, align 1
  store <64 x i8> %wide.load4, ptr %scevgep18, align 1
  store <64 x i8> %wide.load5, ptr %scevgep17, align 1
  store <64 x i8> %wide.load6, ptr %scevgep15, align 1
  %index.next = add nuw i64 %index, 256
  %7 = icmp eq i64 %n.vec, %index.next
  br i1 %7, label %middle.block, label %vector.body, !llvm.loop !20

middle.block:                                     ; preds = %vector.body
  %cmp.n = icmp eq i64 %n.vec, %wide.trip.count
  br i1 %cmp.n, label %B140.loopexit, label %vec.epilog.iter.check

vec.epilog.iter.check:                            ; preds = %middle.block
  %8 = and i64 %wide.trip.count, 240
  %min.epilog.iters.check = icmp eq i64 %8, 0
  br i1 %min.epilog.iters.check, label %B102.preheader, label %vec.epilog.ph, !prof !22

vec.epilog.ph:                                    ; preds = %vec.epilog.iter.check, %vector.main.loop.iter.check
  %vec.epilog.resume.val = phi i64 [ %n.vec, %vec.epilog.iter.check ], [ 0, %vector.main.loop.iter.check ]
  %n.vec8 = and i64 %wide.trip.count, 2147483632
  br label %vec.epilog.vector.body

vec.epilog.vector.body:                           ; preds = %vec.epilog.vector.body, %vec.epilog.ph
  %index9 = phi i64 [ %vec.epilog.resume.val, %vec.epilog.ph ], [ %index.next11, %vec.epilog.vector.body ]
  %9 = getelementptr i8, ptr %0, i64 %index9
  %wide.load10 = load <16 x i8>, ptr %9, align 1
  %10 = getelementptr i8, ptr %1, i64 %index9
  store <16 x i8> %wide.load10, ptr %10, align 1
  %index.next11 = add nuw i64 %index9, 16
  %11 = icmp eq i64 %n.vec8, %index.next11
  br i1 %11, label %vec.epilog.middle.block, label %vec.epilog.vector.body, !llvm.loop !23

vec.epilog.middle.block:                          ; preds = %vec.epilog.vector.body
  %cmp.n12 = icmp eq i64 %n.vec8, %wide.trip.count
  br i1 %cmp.n12, label %B140.loopexit, label %B102.preheader

B102.preheader:                                   ; preds = %vec.epilog.middle.block, %vec.epilog.iter.check, %vector.memcheck, %iter.check
  %indvars.iv.ph = phi i64 [ 0, %iter.check ], [ 0, %vector.memcheck ], [ %n.vec, %vec.epilog.iter.check ], [ %n.vec8, %vec.epilog.middle.block ]
  %xtraiter = and i64 %wide.trip.count, 7
  %lcmp.mod.not = icmp eq i64 %xtraiter, 0
  br i1 %lcmp.mod.not, label %B102.prol.loopexit, label %B102.prol.preheader

B102.prol.preheader:                              ; preds = %B102.preheader
  br label %B102.prol

B102.prol:                                        ; preds = %B102.prol, %B102.prol.preheader
  %lsr.iv = phi i64 [ %xtraiter, %B102.prol.preheader ], [ %lsr.iv.next, %B102.prol ]
  %indvars.iv.prol = phi i64 [ %indvars.iv.next.prol, %B102.prol ], [ %indvars.iv.ph, %B102.prol.preheader ]
  %indvars.iv.next.prol = add nuw nsw i64 %indvars.iv.prol, 1
  %.275.prol = getelementptr i8, ptr %0, i64 %indvars.iv.prol
  %.276.prol = load i8, ptr %.275.prol, align 1
  %.281.prol = getelementptr i8, ptr %1, i64 %indvars.iv.prol
  store i8 %.276.prol, ptr %.281.prol, align 1
  %lsr.iv.next = add nsw i64 %lsr.iv, -1
  %prol.iter.cmp.not = icmp eq i64 %lsr.iv.next, 0
  br i1 %prol.iter.cmp.not, label %B102.prol.loopexit, label %B102.prol, !llvm.loop !24

B102.prol.loopexit:                               ; preds = %B102.prol, %B102.preheader
  %indvars.iv.unr = phi i64 [ %indvars.iv.ph, %B102.preheader ], [ %indvars.iv.next.prol, %B102.prol ]
  %12 = sub nsw i64 %indvars.iv.ph, %wide.trip.count
  %13 = icmp ugt i64 %12, -8
  br i1 %13, label %B140.loopexit, label %B102.preheader13

B102.preheader13:                                 ; preds = %B102.prol.loopexit
  %scevgep26 = getelementptr i8, ptr %scevgep25, i64 %at.3.0103
  %scevgep43 = getelementptr i8, ptr %scevgep42, i64 %.271
  br label %B102
}

attributes #0 = { nofree norecurse nosync nounwind memory(argmem: readwrite) }
attributes #1 = { mustprogress nofree norecurse nosync nounwind willreturn memory(argmem: readwrite) }

!0 = !{!"branch_weights", i32 49, i32 1}
!1 = !{!2}
!2 = distinct !{!2, !3, !"_ZN8__main__5_sameB3v18B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2aixx: %retptr"}
!3 = distinct !{!3, !"_ZN8__main__5_sameB3v18B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2aixx"}
!4 = !{!5}
!5 = distinct !{!5, !6, !"_ZN8__main__6_eightB2v6B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2ax: %retptr"}
!6 = distinct !{!6, !"_ZN8__main__6_eightB2v6B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2ax"}
!7 = !{!8}
!8 = distinct !{!8, !9, !"_ZN8__main__6_eightB2v6B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2ax: %retptr"}
!9 = distinct !{!9, !"_ZN8__main__6_eightB2v6B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2ax"}
!10 = !{!11}
!11 = distinct !{!11, !12, !"_ZN8__main__6_eightB2v6B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2ax: %retptr"}
!12 = distinct !{!12, !"_ZN8__main__6_eightB2v6B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2ax"}
!13 = distinct !{!13, !14}
!14 = !{!"llvm.loop.unroll.disable"}
!15 = !{!16}
!16 = distinct !{!16, !17, !"_ZN8__main__6_eightB2v6B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2ax: %retptr"}
!17 = distinct !{!17, !"_ZN8__main__6_eightB2v6B44c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAK4JIagIAE8uint8_2ax"}
!18 = distinct !{!18, !19}
!19 = !{!"llvm.loop.isvectorized", i32 1}
!20 = distinct !{!20, !19, !21}
!21 = !{!"llvm.loop.unroll.runtime.disable"}
!22 = !{!"branch_weights", i32 16, i32 240}
!23 = distinct !{!23, !19, !21}
!24 = distinct !{!24, !14}
